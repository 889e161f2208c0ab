#!/usr/bin/env bash
# The authors' eight released WikiText-103 models and their training logs.
#
#   scripts/fetch_checkpoints.sh                    list the addresses
#   scripts/fetch_checkpoints.sh --to DIR           download all (checkpoints and logs)
#   scripts/fetch_checkpoints.sh --to DIR 512 3072  download those trained at these lengths
#
# Rerun to resume an interrupted download. What to do with the files: docs/checkpoints.md.
# The logs settle what the paper leaves open, such as the tokens per update at L = 2048.
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
      [ $# -ge 2 ] || fail "--to needs a folder."
      folder=$2
      shift 2
      ;;
    -h | --help)
      sed -n '2,9s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      [[ " ${LENGTHS[*]} " == *" $1 "* ]] || fail "there is no model of length '$1'; there are ${LENGTHS[*]}."
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

command -v curl > /dev/null || fail "curl is needed to download; install it."
mkdir -p "$folder"
for length in "${wanted[@]}"; do
  for suffix in log pt; do
    name=alibi_wt103_L$length.$suffix
    [ -e "$folder/$name" ] && { echo "$folder/$name is there already."; continue; }
    echo "$BASE/$name"
    # Under a name of its own until it is complete; --continue-at goes on from what is there.
    curl --fail --location --retry 5 --continue-at - --progress-bar \
      --output "$folder/$name.part" "$BASE/$name" ||
      fail "$BASE/$name could not be fetched; run the same command again to go on."
    mv "$folder/$name.part" "$folder/$name"
  done
done
