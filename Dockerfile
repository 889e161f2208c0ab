# An image with this project and its pinned packages, for a machine or a cluster with containers:
#
#   docker build -t alibi-fairseq .
#   docker run --gpus all -v "$PWD/runs:/runs" alibi-fairseq nvidia-smi
#   apptainer build alibi.sif docker-daemon://alibi-fairseq:latest
#
# PyTorch's wheel brings CUDA's libraries; the driver is the host's.
FROM python:3.11-slim-bookworm

# fairseq is compiled at installation, kernels by torch.compile when they are first used.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH \
    PIP_NO_CACHE_DIR=1

WORKDIR /opt/alibi_fairseq
COPY . .
RUN ./scripts/install.sh slurm

CMD ["alibi-fairseq", "--help"]
