# Sourced by the shell that carries out one command line, without arguments: bash would put those that it had before back in
# their place. __longstride_dump is the file for what the line leaves, __longstride_last that of what the last one left, if
# there is one. All names of its own start with __longstride.
# What is dumped are fields that end with NUL, read by shell_dump.py. Nothing here depends on IFS or on the
# options in force; a backslash keeps an alias from being seen in what bash parses late.

# Ours is the shell's own end; the line's is carried out by it. A subshell's is the subshell's.
trap() {
    if [[ $BASH_SUBSHELL != 0 || ${1-} == -[!-]* || $# == 0 ]]; then builtin trap "$@"; return; fi
    [[ $1 == -- ]] && shift
    local __longstride_action=$1 __longstride_signal __longstride_others=()
    if (( $# == 1 )); then __longstride_action=-; else shift; fi
    for __longstride_signal; do
        case ${__longstride_signal^^} in
            EXIT | 0) __longstride_at_exit=$__longstride_action ;;
            *) __longstride_others+=("$__longstride_signal") ;;
        esac
    done
    if (( ${#__longstride_others[@]} )); then builtin trap -- "$__longstride_action" "${__longstride_others[@]}"; fi
}

# Arguments: the options in force, then the positional parameters. The traps are in the dump already.
__longstride_save() {
    builtin set +o errexit +o nounset +o xtrace +o verbose +o noglob +o noclobber +o posix
    local __longstride_name __longstride_text __longstride_found
    local -A __longstride_done=()
    {
        builtin printf '\0%s\0' "$1"
        shift
        builtin shopt -p
        builtin printf '\0'
        builtin umask -p
        builtin printf '\0%s\0' "$PWD"
        builtin printf '%s\0' "$#" "$@"
        builtin printf '%s\0' "${#BASH_ALIASES[@]}"
        for __longstride_name in "${!BASH_ALIASES[@]}"; do
            builtin printf '%s\0' "$__longstride_name" "${BASH_ALIASES[$__longstride_name]}"
        done
        builtin mapfile -t __longstride_found <<< "$(\builtin declare -F)"
        builtin printf '%s\0' "${#__longstride_found[@]}"
        for __longstride_text in "${__longstride_found[@]}"; do
            builtin printf '%s\0' "$__longstride_text"
            builtin declare -f -- "${__longstride_text##* }"
            builtin printf '\0'
        done
        # A line of a value may look like a variable: then it names one that is there, or it is left out.
        builtin mapfile -t __longstride_found <<< "$(\builtin declare -p)"
        for __longstride_text in "${__longstride_found[@]}"; do
            [[ $__longstride_text =~ ^declare\ -[-a-zA-Z]+\ ([a-zA-Z_][a-zA-Z0-9_]*)(=|$) ]] || continue
            __longstride_name=${BASH_REMATCH[1]}
            [[ $__longstride_name == __longstride* || ${__longstride_done[$__longstride_name]-} ]] && continue
            __longstride_done[$__longstride_name]=1
            builtin declare -p "$__longstride_name" > /dev/null || continue
            builtin printf '%s\0' variable "$__longstride_name"
            builtin declare -p "$__longstride_name"
            builtin printf '\0'
            if [[ $__longstride_text =~ ^declare\ -[a-zA-Z]*n ]]; then builtin printf '0\0'; continue; fi
            local -n __longstride_value=$__longstride_name
            builtin printf '%s\0' "$(( 2 * ${#__longstride_value[@]} ))"
            if (( ${#__longstride_value[@]} )); then
                builtin printf '%s\0' "${!__longstride_value[@]}" "${__longstride_value[@]}"
            fi
            builtin unset -n __longstride_value
        done
        builtin printf 'end\0'
    } >> "$__longstride_dump"
}

__longstride_return() { return "$1"; }

# In the group alone standard error is closed to what is traced; what the line wants done at its end gets it back.
builtin trap '{
    __longstride_code=$?
    [[ -d ${__longstride_dump%/*} ]] || \command -p mkdir -p "${__longstride_dump%/*}"
    \builtin trap - EXIT
    \builtin trap -p >| "$__longstride_dump" && __longstride_save "$SHELLOPTS" "$@"
} {__longstride_errors}>&2 2>/dev/null
if [[ ${__longstride_at_exit--} != - ]]; then
    __longstride_return "$__longstride_code"
    \builtin eval "$__longstride_at_exit"
fi
\builtin exit "$__longstride_code"' EXIT

if [[ -e $__longstride_last ]]; then
    for __longstride_name in $(builtin compgen -e); do
        case $__longstride_name in PWD | SHLVL | _ | *_PROXY | *_proxy) ;; *) builtin unset -v "$__longstride_name" ;; esac
    done
    . "$__longstride_last"
    # Packages that were installed since: see packages/place.py. In a group, of which a trace that is on shows nothing.
    {
        if [[ -d /workspace/.packages && :${PYTHONPATH-}: != *:/workspace/.packages:* ]]; then
            builtin export PATH="/workspace/.packages/bin:${PATH-}"
            builtin export PYTHONPATH="/workspace/.packages${PYTHONPATH:+:$PYTHONPATH}"
        fi
    } 2>/dev/null
else
    builtin shopt -s expand_aliases
fi
