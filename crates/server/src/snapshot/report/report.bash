# Reports the state of bash: its environment, then options (`set -o`, then `shopt`), flags, umask, aliases, functions.
# A function called `builtin` is reported apart from the others, as the last item.
# `script.rs` says which commands such a script may use, replaces the `@WORDS@`, and removes these comments.
# `@END_OF_ENVIRONMENT@` becomes an assignment NAME=value, which `env` prints after all other variables.
# `__codex_s` and `__codex_b` are the options, `__codex_f` the flags, and `__codex_l` the function `builtin`.
# Each item ends with NUL. The assignment `__codex_s=` always succeeds, so no failure before `||` ends the shell.
(POSIXLY_CORRECT=y; \exec '/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || (POSIXLY_CORRECT=y; \exec 'env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || ('/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || __codex_s=
(
  __codex_s=${SHELLOPTS-} __codex_b=${BASHOPTS-} __codex_f=$-
  POSIXLY_CORRECT=y; \trap - EXIT DEBUG ERR RETURN; \set +eux; \unset POSIXLY_CORRECT
  __codex_l=$(POSIXLY_CORRECT=y; \unset -f declare; \unset POSIXLY_CORRECT; \declare -f builtin)
  POSIXLY_CORRECT=y; \unset -f builtin; \unset POSIXLY_CORRECT
  \builtin printf '%s\0' "$__codex_s" "$__codex_b" "$__codex_f" "$(\builtin umask)" "$(\builtin alias -p)" "$(\builtin declare -f)" "$__codex_l" '@END_OF_STATE@' >&@DESCRIPTOR@
) || __codex_s=
