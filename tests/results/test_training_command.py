import pytest

from alibi_fairseq.results.training_command import model_options, options_of_any_corpus

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


HYDRA_COMMAND = (
    "alibi-fairseq hydra-train --config-dir configs --config-name lm task.data=data "
    "optimization.lr=[0.1] optimizer._name=adam lr_scheduler._name=fixed common.seed=1 "
    "checkpoint.save_dir=a common.cpu=true"
)


def test_hydra_options_of_same_model_are_equal():
    other = HYDRA_COMMAND.replace("common.seed=1", "common.seed=2").replace(
        "save_dir=a", "save_dir=b"
    )
    other = other.replace(" common.cpu=true", " +common.user_dir=plugin hydra.run.dir=b")
    assert model_options(other) == model_options(HYDRA_COMMAND)
    assert dict(model_options(HYDRA_COMMAND))["--optimizer"] == "adam"


@pytest.mark.parametrize("option", ["optimizer._name=nag", "+model.dropout=0.1", "task.data=other"])
def test_hydra_options_of_another_model_differ(option):
    assert model_options(f"{HYDRA_COMMAND} {option}") != model_options(HYDRA_COMMAND)


def test_learning_rate_and_data_of_hydra_belong_to_corpus():
    other = HYDRA_COMMAND.replace("data=data", "data=other").replace("[0.1]", "[0.2]")
    assert options_of_any_corpus(other) == options_of_any_corpus(HYDRA_COMMAND)


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
