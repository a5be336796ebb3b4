# What the commands of ./dev do, phase by phase, and how long each took: wall seconds and, as those
# grow on a busy machine, user and system seconds of the processor.

phase_rows=  # a line for each phase: wall and processor time in hundredths of a second, title
readonly phase_title_columns=56

# read_clocks: sets `wall` and `cpu`, in hundredths of a second: the time of day, and the user and
# system time of all that this shell has waited for (utime to cstime of proc(5)).
read_clocks() {
  local stat fields
  wall=$((${EPOCHREALTIME/[.,]/} / 10000))
  read -r stat </proc/self/stat
  read -r -a fields <<<"${stat##*) }"
  cpu=$(((fields[11] + fields[12] + fields[13] + fields[14]) * 100 / $(getconf CLK_TCK)))
}

# phase TITLE COMMAND...: runs the command, says how long it took and keeps that for the table.
phase() {
  local title=$1 status=0 wall cpu started cpu_before
  shift
  echo "== $title" >&2
  read_clocks
  started=$wall cpu_before=$cpu
  "$@" || status=$?
  read_clocks
  wall=$((wall - started)) cpu=$((cpu - cpu_before))
  phase_rows+="$wall $cpu $title"$'\n'
  echo "   $(seconds "$wall") s, processor $(seconds "$cpu") s" >&2
  return "$status"
}

# seconds HUNDREDTHS: with one digit after the point.
seconds() {
  local tenths=$((($1 + 5) / 10))
  echo "$((tenths / 10)).$((tenths % 10))"
}

# step TITLE COMMAND...: a phase whose command writes to the error stream, where standard output
# belongs to the result (`./dev demo > story.txt`). On a terminal the output is shown as it comes;
# elsewhere how much of a build is done, and all of it when the command fails.
step() {
  phase "$1" run_quietly "${@:2}"
}

# run_quietly COMMAND...
run_quietly() {
  local log status=0
  if [[ -t 2 ]]; then
    "$@" >&2
    return
  fi
  log=$(mktemp)
  "$@" 2>&1 | tee "$log" | tenths >&2 || status=$?
  ((status == 0)) || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

# tenths: a line for each tenth that the lines `[3/40] ...` of a build say is done.
tenths() {
  awk 'match($0, /^\[[0-9]+\/[0-9]+\] /) {
    split(substr($0, 2, RLENGTH - 3), done, "/")
    tenth = int(10 * done[1] / done[2])
    if (tenth > shown) { print "   " 10 * tenth " %"; fflush(); shown = tenth }
  }'
}

# print_phases: the table of all phases until now, on the error stream.
print_phases() {
  local wall cpu title wall_sum=0 cpu_sum=0 format="%-${phase_title_columns}s %9s %12s\n"
  # shellcheck disable=SC2059
  {
    printf "$format" phase "seconds" "processor s"
    while read -r wall cpu title; do
      [[ -n $title ]] || continue
      wall_sum=$((wall_sum + wall)) cpu_sum=$((cpu_sum + cpu))
      ((${#title} <= phase_title_columns)) || title=${title::phase_title_columns-3}...
      printf "$format" "$title" "$(seconds "$wall")" "$(seconds "$cpu")"
    done <<<"$phase_rows"
    printf "$format" all "$(seconds "$wall_sum")" "$(seconds "$cpu_sum")"
  } >&2
}
