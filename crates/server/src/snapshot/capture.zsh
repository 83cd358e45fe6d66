__codex_o=$(builtin set +o); builtin emulate -R zsh; builtin setopt noaliases
builtin trap - EXIT ZERR DEBUG
__codex_s=$(
  __codex_o=(${(M)${(f)__codex_o}:#set -o *})
  __codex_o=(${__codex_o:#set -o (no|)(globalrcs|interactive|login|monitor|privileged|rcs|restricted|shinstdin|singlecommand|zle)})
  __codex_l=(${(M)__codex_o:#set -o (no|)(errexit|errreturn|exec|sourcetrace|unset|verbose|xtrace)})
  builtin print -r -- 'builtin unalias -a'
  builtin print -rl -- ${__codex_o:|__codex_l}
  builtin functions
  builtin print -r -- "fpath=( ${(q)fpath[@]} )"
  builtin alias -L
  builtin print -r -- "umask $(builtin umask)"
  builtin print -rl -- $__codex_l :
)
(builtin eval "$__codex_s") >/dev/null 2>&1 || builtin exit 1
builtin printf '%s\n%s\0' '@MARKER@' "$__codex_s"
builtin unset __codex_o __codex_s
exec env -0
