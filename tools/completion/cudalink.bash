# SPDX-License-Identifier: MIT
#
# Completion for bash. The program itself says what fits, so this never gets old; where it says
# nothing, file names fit.

_cudalink() {
  local line word=${COMP_WORDS[COMP_CWORD]//\\/}
  COMPREPLY=()
  while IFS= read -r line; do
    [[ $line == "$word"* ]] && COMPREPLY+=("$(printf %q "$line")")
  done < <("$1" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _cudalink cudalink
