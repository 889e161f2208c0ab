#!/usr/bin/env bash
# Download the authors' eight released WikiText-103 models and their training logs.
#
#   scripts/fetch_checkpoints.sh                       list the addresses
#   scripts/fetch_checkpoints.sh --to FOLDER           download all (checkpoints and logs)
#   scripts/fetch_checkpoints.sh --to FOLDER 512 3072  download those trained at these lengths
#
# Rerun to resume an interrupted download. docs/authors-commands.md describes the use of the files. The
# logs give details missing from the paper, such as the tokens per update at L = 2048.
set -euo pipefail

readonly BASE=https://dl.fbaipublicfiles.com/train_short_test_long/wt103
readonly LENGTHS=(64 128 256 512 1024 1536 2048 3072)

fail() {
  echo "fetch_checkpoints.sh: error: $1" >&2
  exit 2
}

folder=""
wanted=()
while [ $# -gt 0 ]; do
  case "$1" in
    --to)
      [ $# -ge 2 ] || fail "--to requires a folder."
      folder=$2
      shift 2
      ;;
    -h | --help)
      sed -n '2,9s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      [[ " ${LENGTHS[*]} " == *" $1 "* ]] || fail "no model has length '$1'. Pass one or more of ${LENGTHS[*]}."
      wanted+=("$1")
      shift
      ;;
  esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=("${LENGTHS[@]}")

if [ -z "$folder" ]; then
  for length in "${wanted[@]}"; do
    printf '%s\n' "$BASE/alibi_wt103_L$length.pt" "$BASE/alibi_wt103_L$length.log"
  done
  exit 0
fi

command -v curl > /dev/null || fail "curl is missing. Install it."
mkdir -p "$folder"
for length in "${wanted[@]}"; do
  for suffix in log pt; do
    name=alibi_wt103_L$length.$suffix
    [ -e "$folder/$name" ] && { echo "$folder/$name exists."; continue; }
    echo "$BASE/$name"
    # A separate name until the file is complete. --continue-at resumes a partial download.
    curl --fail --location --retry 5 --continue-at - --progress-bar \
      --output "$folder/$name.part" "$BASE/$name" ||
      fail "$BASE/$name could not be downloaded. Rerun the same command to resume."
    mv "$folder/$name.part" "$folder/$name"
  done
done
