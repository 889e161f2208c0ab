import pytest

from alibi_fairseq.results.training_command import model_options

COMMAND = "fairseq-train data --lr 0.1 --adam-betas '(0.9, 0.98)' --seed 1 --save-dir a --cpu"


@pytest.mark.parametrize(
    "command",
    [
        COMMAND.replace("--seed 1", "--seed=2").replace("--save-dir a", "--save-dir b"),
        COMMAND.replace("fairseq-train", "/usr/bin/python -m alibi_fairseq train"),
        COMMAND.replace("--cpu", "--num-workers 0 --log-format json --tensorboard-logdir t"),
        "fairseq-train data --adam-betas '(0.9, 0.98)' --lr=0.1",
        COMMAND.replace("--lr 0.1", "--lr 0.3") + " --lr 0.1",
    ],
)
def test_options_of_same_model_are_equal(command):
    assert model_options(command) == model_options(COMMAND)


@pytest.mark.parametrize(
    "command",
    [
        COMMAND.replace("--lr 0.1", "--lr 0.2"),
        COMMAND.replace("train data", "train other"),
        COMMAND + " --dropout 0.1",
        COMMAND + " --update-freq 2",
        COMMAND + " --share-decoder-input-output-embed",
        COMMAND + " '",
    ],
)
def test_options_of_another_model_differ(command):
    assert model_options(command) != model_options(COMMAND)
