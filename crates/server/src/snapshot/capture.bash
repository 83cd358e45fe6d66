__codex_f=$-
__codex_o=$(builtin set +o)
builtin set +aeuvx
builtin trap - EXIT DEBUG ERR RETURN
__codex_s=$(
  builtin shopt -p | while IFS= builtin read -r __codex_l; do
    case $__codex_l in *_shell) ;; *) builtin printf '%s\n' "$__codex_l" ;; esac
  done
  builtin declare -f
  builtin alias -p
  builtin umask -p
  builtin printf '%s\n' "$__codex_o"
  case $__codex_f in *e*) builtin printf 'set -e\n' ;; esac
)
(builtin eval "$__codex_s") >/dev/null 2>&1 || builtin exit 1
builtin printf '%s\n%s\0' '@MARKER@' "$__codex_s"
builtin unset __codex_f __codex_o __codex_s
builtin exec env -0
