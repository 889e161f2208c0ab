#!/usr/bin/env bash
# Install what scripts/bundle_wheels.sh gathered, on an offline machine.
#
#   install_offline.sh [BUNDLE]     default: the folder this script lies in
#
# Goes into the Python that `python3` is (or PYTHON=/path/to/python), beside its PyTorch and NumPy.
# What is installed there already is left as it is, except this project, which is replaced, and
# packages of versions that this project or fairseq cannot use.
set -euo pipefail

fail() {
  echo "install_offline.sh: error: $1" >&2
  exit 2
}

case "${1:-}" in
  -h | --help)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  -*) fail "there is no option $1; see --help." ;;
esac
bundle="${1:-$(dirname "$0")}"
[ -f "$bundle/SHA256SUMS" ] || fail "$bundle is no bundle of bundle_wheels.sh (it has no SHA256SUMS)."
python="${PYTHON:-python3}"
command -v "$python" > /dev/null || fail "there is no $python; set PYTHON=/path/to/python."
python="$(command -v "$python")"
case "$python" in /*) ;; *) python="$PWD/$python" ;; esac

cd "$bundle" # no Python files lie here that could be imported by mistake
sha256sum --check --strict --quiet SHA256SUMS > /dev/null 2>&1 ||
  fail "$bundle does not match its SHA256SUMS; copy it here again."

for module in pip torch numpy; do
  "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" ||
    fail "$python has no $module; install_offline.sh needs a Python with pip, PyTorch and NumPy."
done

# One per line: the wheels of this project and, unless this version is installed, fairseq. Then those
# of their requirements that the bundle has wheels for. fairseq also requires packages that language
# models do not use, which would make the bundle much larger.
plan="$("$python" - << 'PYTHON'
import re
import sys
from importlib import metadata
from pathlib import Path


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


names = re.findall(r"^\w+ [ *](.+\.whl)$", Path("SHA256SUMS").read_text(), re.MULTILINE)
wheels = {normalized(name.split("-")[0]): name for name in names}
fairseq = wheels["fairseq-fixed"]
_, version, tag = fairseq.split("-")[:3]
if not tag.startswith("cp%d%d" % sys.version_info[:2]):
    python = re.sub(r"cp(\d)(\d+)", r"\1.\2", tag)
    sys.exit("the bundle is for Python %s, and this is %d.%d" % (python, *sys.version_info[:2]))
print(wheels["alibi-fairseq"])
try:
    installed = metadata.version("fairseq-fixed")
except metadata.PackageNotFoundError:
    installed = None
if installed != version:
    print(fairseq)
for project in ("alibi-fairseq", "fairseq-fixed"):
    (distribution,) = metadata.distributions(path=[wheels[project]])
    for requirement in distribution.requires or ():
        required = normalized(re.match(r"[\w.-]+", requirement)[0])
        if required in wheels and required != "fairseq-fixed":
            print(requirement)
PYTHON
)" || fail "nothing was installed; the line above says why."
mapfile -t wheels < <(grep '\.whl$' <<< "$plan")
mapfile -t requirements < <(grep -v '\.whl$' <<< "$plan")
mapfile -t sources < <(sed -n 's/^[0-9a-f]* [ *]\(.*\.whl\)$/--find-links=\1/p' SHA256SUMS)
echo "Installing into $python from $bundle."

# Nothing but the bundle is asked, whatever a configuration file or a variable says.
pip_install() {
  PIP_CONFIG_FILE=/dev/null "$python" -m pip install --isolated --no-index --no-cache-dir --quiet \
    --disable-pip-version-check "$@" ||
    fail "pip could not install; into a Python that you may not change install by way of an environment: \
python3 -m venv --system-site-packages env && . env/bin/activate"
}

# pip keeps what is installed where it satisfies the requirements, and those of the requirements.
pip_install "${sources[@]}" "${requirements[@]}"
pip_install --no-deps --force-reinstall "${wheels[@]}"

if [[ "${wheels[*]}" == *fairseq_fixed* ]]; then
  "$python" - << 'PYTHON'
from importlib.metadata import files
from importlib.util import find_spec

# fairseq imports all of its tasks and criterions at once, and these, for sound and for classifying
# sentences, need scikit-learn, which with scipy would double the size of a bundle.
if find_spec("sklearn") is None:
    for file in files("fairseq-fixed"):
        if str(file) in {
            "fairseq/tasks/audio_classification.py",
            "fairseq/criterions/sentence_prediction.py",
            "fairseq/criterions/sentence_prediction_adapters.py",
        }:
            file.locate().unlink()
            print(f"No scikit-learn here, so {file} was left out.")
PYTHON
fi

exec "$python" -m alibi_fairseq models
