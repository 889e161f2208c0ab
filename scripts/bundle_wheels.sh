#!/usr/bin/env bash
# Collect wheels for an offline machine in a folder. That machine must have Python, PyTorch 2.10 or
# later, and NumPy. Run this script on a machine with internet access.
#
#   scripts/bundle_wheels.sh [--python 3.12] [--out FOLDER]
#
# --python  Python version of the other machine (default: 3.12)
# --out     output folder (default: wheels-py3.12, with the version)
#
# For Python 3.12 on x86-64, all wheels are downloaded. For other versions, fairseq is compiled. This
# requires that version of Python (PYTHON=/path/to/it, or for example python3.11 in the PATH) and a
# C++ compiler. The folder includes install_offline.sh; run it on the other machine.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"

# Versions as in constraints.txt. This older sacrebleu does not require lxml (5 MB).
readonly PINNED=(annotated-types bitarray click cloudpickle colorama hydra-core joblib omegaconf packaging portalocker
  protobuf psutil pydantic pydantic_core PyYAML regex sacremoses sentencepiece tabulate tensorboardX
  tqdm typing-inspection typing_extensions)
readonly SACREBLEU=sacrebleu==2.0.0

fail() {
  echo "bundle_wheels.sh: error: $1" >&2
  exit 2
}

version=3.12
out=""
while [ $# -gt 0 ]; do
  case "$1" in
    --python | --out)
      [ $# -ge 2 ] || fail "$1 requires a value."
      if [ "$1" = --out ]; then out=$2; else version=$2; fi
      shift 2
      ;;
    -h | --help)
      sed -n '2,12s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) fail "unrecognized option $1. See --help." ;;
  esac
done
[[ "$version" =~ ^3\.(1[1-9])$ ]] || fail "--python $version is not supported. Pass 3.11 or later, such as 3.12."
out="${out:-wheels-py$version}"
[ ! -e "$out" ] || fail "$out exists. Delete it or pass another --out."

is_of_version() {
  [ "$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null)" = "$version" ]
}

python=""
for candidate in "${PYTHON:-python$version}" python3; do
  if "$candidate" -m pip --version > /dev/null 2>&1; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || fail "no Python with pip was found. Set PYTHON=/path/to/python."

part="$(mktemp -d "$(dirname "$out")/.$(basename "$out").XXXXXX")" || fail "cannot create $out. Pass another --out."
source="$(mktemp -d)"
constraints="$(mktemp)"
trap 'rm -rf "$part" "$source" "$constraints"' EXIT
# Without the constraint, the build of fairseq would download another torch. pip splits the variables
# at spaces, which the path of the clone may contain.
cp "$root/constraints.txt" "$constraints"
export PIP_CONSTRAINT="$constraints" PIP_BUILD_CONSTRAINT="$constraints"
export PIP_DISABLE_PIP_VERSION_CHECK=1

pinned() {
  grep -i "^$1==" "$root/constraints.txt" || fail "constraints.txt does not pin $1."
}

download() {
  local platforms=() tag
  for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux_2_12 manylinux1; do
    platforms+=(--platform "${tag}_$(uname -m)")
  done
  PIP_CONSTRAINT="" "$python" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
    --python-version "$version" "${platforms[@]}" --dest "$part" "$@"
}

build() {
  "$1" -m pip wheel --quiet --no-deps --wheel-dir "$part" "$2" ||
    fail "pip could not build $(basename "$2"); see its messages above."
}

echo "Collecting wheels for Python $version on $(uname -m) …"
wanted=("$SACREBLEU")
for name in "${PINNED[@]}"; do wanted+=("$(pinned "$name")"); done
download "${wanted[@]}" || fail "pip could not download the wheels; see its messages above."

fairseq="$(pinned fairseq-fixed)"
if ! download "$fairseq" 2> /dev/null; then
  is_of_version "$python" || fail "$fairseq has no binary wheel for Python $version on $(uname -m), \
and no Python $version with pip was found to compile it. Set PYTHON=/path/to/it."
  echo "Compiling $fairseq (minutes) …"
  build "$python" "$fairseq"
fi
build "$python" "$(pinned antlr4-python3-runtime)"
# Build outside the checkout, since a build leaves files behind.
cp -r "$root"/{alibi_fairseq,setup.py,pyproject.toml,README.md,LICENSE} "$source"
mkdir "$source/results"
cp -r "$root/results/paper" "$source/results"
cp -r "$root/configs" "$source"
build "$python" "$source"

cp "$root/scripts/install_offline.sh" "$part"
(cd "$part" && sha256sum -- * > SHA256SUMS)
size="$(cat "$part"/* | wc -c)"
chmod 755 "$part"
mv "$part" "$out"

(cd "$out" && wc -c -- * | sort -n | sed '$d')
echo "$out: $((size / 1000000)).$((size / 100000 % 10)) MB; SHA256SUMS lists the files. On the other machine:"
echo "    bash $(basename "$out")/install_offline.sh"
