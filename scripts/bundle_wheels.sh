#!/usr/bin/env bash
# Gather, on a machine with a network, what this project needs on one without, beside the Python,
# PyTorch and NumPy that are there: a folder of wheels under 30 MB.
#
#   scripts/bundle_wheels.sh [--python 3.12] [--out FOLDER]
#
# --python  the version on the other machine (default 3.12; `python3 --version` there)
# --out     default wheels-py3.12 and so on
#
# For Python 3.12 on x86-64 everything is downloaded. For another one fairseq is compiled here, which
# takes a Python of that version (PYTHON=/path/to/it, or python3.11 and so on from the PATH) and a C++
# compiler. On the other machine run install_offline.sh, which the folder holds as well.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
readonly LIMIT=30000000 # bytes

# From the pinned versions; sacrebleu is an older one, which does not need the 5 MB of lxml.
readonly PINNED=(annotated-types bitarray click cloudpickle colorama hydra-core joblib omegaconf packaging portalocker
  protobuf psutil pydantic pydantic_core PyYAML regex sacremoses sentencepiece tabulate tensorboardX
  tqdm typing-inspection)
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
      [ $# -ge 2 ] || fail "$1 needs a value."
      if [ "$1" = --out ]; then out=$2; else version=$2; fi
      shift 2
      ;;
    -h | --help)
      sed -n '2,12s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) fail "there is no option $1; see --help." ;;
  esac
done
[[ "$version" =~ ^3\.(1[1-9])$ ]] || fail "--python is 3.11 or later, such as 3.12, not '$version'."
out="${out:-wheels-py$version}"
[ ! -e "$out" ] || fail "$out exists; delete it or choose another --out."

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
[ -n "$python" ] || fail "no Python with pip was found; set PYTHON=/path/to/python."

part="$(mktemp -d "$(dirname "$out")/.$(basename "$out").XXXXXX")" || fail "$out cannot be made."
source="$(mktemp -d)"
trap 'rm -rf "$part" "$source"' EXIT
# The build of fairseq is constrained too; it would fetch another torch otherwise.
export PIP_CONSTRAINT="$root/constraints.txt" PIP_BUILD_CONSTRAINT="$root/constraints.txt"
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
    fail "pip could not build $(basename "$2"); its words above say why."
}

echo "Gathering wheels for Python $version on $(uname -m) …"
wanted=("$SACREBLEU")
for name in "${PINNED[@]}"; do wanted+=("$(pinned "$name")"); done
download "${wanted[@]}" || fail "pip could not download the wheels; its words above say why."

fairseq="$(pinned fairseq-fixed)"
if ! download "$fairseq" 2> /dev/null; then
  is_of_version "$python" || fail "there is no binary wheel of $fairseq for Python $version on \
$(uname -m), and no Python $version with pip here to compile it with; set PYTHON=/path/to/it."
  echo "Compiling $fairseq (minutes) …"
  build "$python" "$fairseq"
fi
build "$python" "$(pinned antlr4-python3-runtime)"
# Away from the checkout, where a build leaves files behind.
cp -r "$root"/{alibi_fairseq,setup.py,pyproject.toml,README.md,LICENSE} "$source"
mkdir "$source/results"
cp -r "$root/results/paper" "$source/results"
cp -r "$root/configs" "$source"
build "$python" "$source"

cp "$root/scripts/install_offline.sh" "$part"
(cd "$part" && sha256sum -- * > SHA256SUMS)
size="$(cat "$part"/* | wc -c)"
[ "$size" -lt "$LIMIT" ] || fail "the wheels have $size bytes, more than the $LIMIT that a bundle may have."
chmod 755 "$part"
mv "$part" "$out"

(cd "$out" && wc -c -- * | sort -n | sed '$d')
echo "$out: $((size / 1000000)).$((size / 100000 % 10)) MB; SHA256SUMS lists the files. On the other machine:"
echo "    bash $(basename "$out")/install_offline.sh"
