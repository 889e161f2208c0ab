# shellcheck shell=bash
# Sourced by the batch files: the environment of a job, from one variable for each kind of cluster.
#
#   ALIBI_MODULES="cuda/12.4 python/3.11"              modules to load
#   ALIBI_CONDA_ENV=alibi                              a conda environment to activate
#   ALIBI_CONTAINER="apptainer exec --nv alibi.sif"    a command that runs another in a container
#
# Afterwards "${container[@]}" stands before what runs on the nodes.

if [ -n "${ALIBI_MODULES:-}" ]; then
  command -v module > /dev/null || fail "ALIBI_MODULES is set, but there is no command 'module' here."
  read -ra modules <<< "$ALIBI_MODULES"
  module load "${modules[@]}" || fail "module load $ALIBI_MODULES failed."
fi

if [ -n "${ALIBI_CONDA_ENV:-}" ]; then
  conda_base="$(conda info --base 2> /dev/null)" || fail "ALIBI_CONDA_ENV is set, but there is no conda here."
  set +u # scripts of conda read variables that are not set
  # shellcheck source=/dev/null
  source "$conda_base/etc/profile.d/conda.sh"
  conda activate "$ALIBI_CONDA_ENV" || fail "conda activate $ALIBI_CONDA_ENV failed."
  set -u
fi

# srun does not take over the job's number of cores by itself (since SLURM 22.05).
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"

# shellcheck disable=SC2034
read -ra container <<< "${ALIBI_CONTAINER:-}"
