#!/usr/bin/env bash
# Install what scripts/bundle_wheels.sh gathered, on an offline machine.
#
#   install_offline.sh [BUNDLE]     default: the folder this script lies in
#
# Goes into the Python that `python3` is (or PYTHON=/path/to/python), beside its PyTorch and NumPy.
# What is installed there already is left as it is, except this project, which is replaced.
set -euo pipefail

fail() {
  echo "install_offline.sh: error: $1" >&2
  exit 2
}

case "${1:-}" in
  -h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
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

# One wheel per line: this project, and what is not installed yet.
missing="$("$python" - << 'PYTHON'
import re
import sys
from importlib import metadata
from pathlib import Path

names = re.findall(r"^\w+ [ *](.+\.whl)$", Path("SHA256SUMS").read_text(), re.MULTILINE)
here = "cp%d%d" % sys.version_info[:2]
for name in names:
    project, _, _, tag = name.split("-")[:4]
    if project == "fairseq_fixed" and not tag.startswith(here):
        version = re.sub(r"cp(\d)(\d+)", r"\1.\2", name.split("-")[2])
        sys.exit("the bundle is for Python %s, and this is %d.%d" % (version, *sys.version_info[:2]))
    try:
        metadata.version(project.replace("_", "-"))
        installed = project != "alibi_fairseq"
    except metadata.PackageNotFoundError:
        installed = False
    if not installed:
        print(name)
PYTHON
)" || fail "nothing was installed; the line above says why."
mapfile -t wheels <<< "$missing"
echo "Installing into $python: $missing"

# --isolated: no index or folder from a configuration file or variable is asked either.
"$python" -m pip install --isolated --no-index --no-deps --no-cache-dir --quiet --force-reinstall \
  --disable-pip-version-check "${wheels[@]}" ||
  fail "pip could not install; into a Python that you may not change install by way of an environment: \
python3 -m venv --system-site-packages env && . env/bin/activate"

if [[ "$missing" == *fairseq_fixed* ]]; then
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
