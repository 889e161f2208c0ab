#!/usr/bin/env bash
# Install this project and the pinned versions of what it needs into the active Python environment.
#
#   scripts/install.sh [EXTRA]     EXTRA is an extra of setup.py, such as "test"
#
# Uses `python`, or PYTHON=/path/to/python. An installed PyTorch is kept; it must be 2.10 or later.
# The project is installed in editable mode. docs/installation.md has the same with pip alone. Python
# 3.10, which needs another fairseq, gets the newest versions that agree with it, not the pinned ones.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"

case "${1:-}" in
  -h | --help)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  -*) fail "unknown option $1; see --help." ;;
esac
extra="${1:-}"
python="$(command -v "${PYTHON:-python}")" || fail "${PYTHON:-python} was not found. Activate an environment or set PYTHON."
"$python" -c 'import sys, pip; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2> /dev/null ||
  fail "$python is not Python 3.10, 3.11, 3.12 or 3.13 with pip."
torch="$("$python" -c 'import torch; print(torch.__version__)' 2> /dev/null)" || torch=""
if [ -n "$torch" ]; then
  "$python" -c 'import sys; from pip._vendor.packaging.version import parse; sys.exit(parse(sys.argv[1]) < parse("2.10"))' "$torch" ||
    fail "PyTorch $torch is installed, but 2.10 or later is needed. Upgrade it, or use another environment."
fi
environment="$("$python" -c 'import sys; print(sys.prefix)')"

# The stamp goes before the first change: an interrupted installation must not look finished.
stamp="$environment/alibi-fairseq-installed"
extras=()
if is_installed "$environment"; then
  mapfile -t extras < <(tail -n +2 "$stamp")
fi
[ -z "$extra" ] || is_installed "$environment" "$extra" || extras+=("$extra")
rm -f "$stamp"

log="$(mktemp -t alibi-fairseq-install.XXXXXX)"
constraints="$(mktemp)"
trap 'rm -f "$constraints"' EXIT
if "$python" -c 'import sys; sys.exit(sys.version_info >= (3, 11))'; then
  fairseq="fairseq==0.12.2"
  # fairseq 0.12.2 needs an omegaconf whose metadata later versions of pip refuse (fairseq issue 5436).
  printf '%s\n' "pip<24.1" "Cython<3.1" "numpy<2.3" > "$constraints"
else
  fairseq="fairseq-fixed"
  cp "$root/constraints.txt" "$constraints"
fi
pytorch="PyTorch and the other packages (0.2 to 3 GB to download, by the PyTorch build; minutes)"
if [ -n "$torch" ]; then
  sed -i '/^torch==/d' "$constraints"
  pytorch="the other packages next to the installed PyTorch (0.2 GB to download; a minute)"
fi

# Bytecode is compiled at the end, on all cores. An exported constraint, such as that of
# docs/installation.md, would replace an installed PyTorch.
pip_install() {
  if ! env -u PIP_CONSTRAINT -u PIP_BUILD_CONSTRAINT "$python" -m pip install --disable-pip-version-check --no-compile --no-build-isolation \
    --no-color --progress-bar off --constraint "$constraints" "$@" >> "$log" 2>&1; then
    grep '^ *ERROR: ' "$log" >&2 || tail -n 5 "$log" >&2
    fail "pip failed. Its output is in $log."
  fi
}

echo "Installing into $environment, in three steps:"
echo "1. the build requirements (seconds)"
pip_install pip setuptools wheel Cython numpy
# Compiled here where there is no binary wheel (Python 3.11), and before anything that PyTorch's
# build tools would slow down: with them, this step takes minutes instead of seconds.
echo "2. fairseq (up to a minute, where it must be compiled)"
# Without pip's cache, from which other environments would get a fairseq without its extensions.
PYTHONPATH="$root/scripts/fairseq_build" pip_install --no-cache-dir --no-deps "$fairseq"
echo "3. $pytorch"
pip_install --editable "$root${extra:+[$extra]}"
# fairseq requires torchaudio, which language models do not use. Where it does not match the
# installed PyTorch it cannot be loaded, and everything that looks for it fails (transformers does).
if ! "$python" -c 'import torchaudio' 2> /dev/null; then
  "$python" -m pip uninstall --yes torchaudio >> "$log" 2>&1 || true
fi
"$python" -m compileall -q -j 0 "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" > /dev/null 2>&1 || true
if [ -w "$environment" ]; then
  printf '%s\n' "$(installed_from)" ${extras[@]+"${extras[@]}"} > "$stamp"
fi
rm -f "$log"
echo "Installed. \`alibi-fairseq --help\` lists the commands."
