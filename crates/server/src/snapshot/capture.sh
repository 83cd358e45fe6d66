__codex_f=$-
__codex_o=$(set +o)
set +aeuvx
trap - 0
__codex_s=$(
  typeset -f 2>/dev/null
  alias | while IFS= read -r __codex_l; do
    case $__codex_l in
      alias\ *) printf '%s\n' "$__codex_l" ;;
      [!\'\"\ ]*=*) printf 'alias %s\n' "$__codex_l" ;;
      *) printf '%s\n' "$__codex_l" ;;
    esac
  done
  printf 'umask %s\n' "$(umask)"
  printf '%s\n' "$__codex_o"
  case $__codex_f in *e*) printf 'set -e\n' ;; esac
)
(eval "$__codex_s") >/dev/null 2>&1 || exit 1
printf '%s\n%s\0' '@MARKER@' "$__codex_s"
unset __codex_f __codex_o __codex_s
exec env -0
