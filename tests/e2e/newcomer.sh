#!/usr/bin/env bash
# Does what a newcomer does: begins with an empty folder, and types every command of docs/tutorials in one shell, page
# after page. Files that a page says to save are saved; what a page shows as output must be what came.
#
#   newcomer.sh FOLDER FIRST PAGE...     FOLDER is new; how FIRST ends ("## Clean up") is typed at the end of all
#
#   RSM_PIP     what stands for `pip`, such as one that installs a wheel that was just built (default: the environment's own)
#
# The ports of the pages must be free: tests give it a network of its own. All that it starts ends with it.
set -euo pipefail

folder=$1
first=$2
shift 2
mkdir -p "$folder/home" "$folder/steps"
export HOME="$folder/home" NO_COLOR=1 COLUMNS=200
unset XDG_STATE_HOME PYTHONPATH VIRTUAL_ENV RSM_METADATA_URI RSM_LOG_KEY RSM_DEV_DATA_DIR
reader="$(dirname "$0")/tutorial_steps.py"

# type_page PAGE PART: what the shell is given of it.
type_page() {
  local steps step of
  steps="$folder/steps/$(basename "$1" .md)-$2"
  mkdir "$steps"
  python3 "$reader" "$1" "$2" "$steps"
  for step in "$steps"/*; do
    case $step in
      *.sh) printf 'echo "--- %s" >&2\n{ . %q; } > %q\ncat %q\n' "$step" "$step" "$step.said" "$step.said" ;;
      *.out)
        of=${step%.out}
        printf 'shows %q %q %q\n' "$steps/${of##*.of-}.sh.said" "$step" "$1"
        ;;
      *) printf 'cp %q %q\n' "$step" "$(basename "$step" | cut -d . -f 2-)" ;;
    esac
  done
}

{
  # As in a terminal, each command in the background is a job of its own: `kill %1`.
  echo 'set -eumo pipefail'
  echo 'pip() { ${RSM_PIP:-command pip} "$@"; }'
  echo "trap 'rsm down > /dev/null 2>&1 || true; kill -9 \$(jobs -p) 2> /dev/null || true' EXIT"
  # What came has a newline at its end, or not.
  echo 'shows() { diff <(cat "$1"; [ -z "$(tail -c 1 "$1")" ] || echo) "$2" >&2 || { echo "$3 shows another output" >&2; exit 1; }; }'
  echo "cd '$folder'"
  type_page "$first" begin
  for page in "$@"; do type_page "$page" whole; done
  type_page "$first" end
} > "$folder/session.sh"
bash "$folder/session.sh"
