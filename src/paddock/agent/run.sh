#!/bin/sh
# The runner container's command, in any image that has a POSIX shell:  sh STAGE/run [COMMAND [ARGUMENT...]]
#
# Hands the staged JIT to the runner, waits for the runner, and ends with its exit code. The runner's own
# start script hides most exit codes and restarts the runner after some (I60). A plain shell that is told
# to stop would leave its runner behind (I59). Without COMMAND this script starts `bin/Runner.Listener run`
# or `github-act-runner run`, found in $PADDOCK_RUNNER_HOME, the working directory, or where the usual
# images have it. $PADDOCK_RUNNER names the runner program, `actions` or `act-runner`, if its pool does;
# otherwise the program is recognised by its file's name.
#
# Meanwhile it writes to STAGE/vitals for the sidecar, without delaying the runner: a sample of this
# container's cgroup every $PADDOCK_SAMPLE_SECONDS (5), and marks of the job's start and the runner's end.
#
# Its own exit codes: 66, no JIT is staged; 72, there is no runner program. (PADDOCK_SAMPLE_BYTES,
# PADDOCK_CGROUP_ROOT and PADDOCK_CGROUP_TABLE are for tests.)

set -u

stage=${0%/*}
[ "$stage" != "$0" ] || stage=.
case $stage in
/*) ;;
*) stage=$PWD/$stage ;;
esac
vitals=$stage/vitals

say() { printf 'paddock: %s\n' "$*" >&2; }

# A background child of a POSIX shell ignores INT, so both signals are passed on as TERM.
child='' told=''
stop() {
	told=yes
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap stop TERM INT

# Sampling. A value that cannot be read stays empty. All sampling runs in subshells, so that no error here
# can affect the runner.

# As much as the sidecar reads at once. There are at most two such files (`samples`, `samples.old`).
most_bytes=${PADDOCK_SAMPLE_BYTES:-65536}

every=${PADDOCK_SAMPLE_SECONDS:-5}
case $every in
'' | *[!0-9]*) every=5 ;;
esac

# find_cgroup: the directories of this container's own numbers. Inside a container the files are mostly at
# the top, for any path that /proc names; on a machine they are below it. A directory without
# memory.current is the root cgroup, whose numbers are not this container's.
find_cgroup() {
	root=${PADDOCK_CGROUP_ROOT:-/sys/fs/cgroup}
	table=${PADDOCK_CGROUP_TABLE:-/proc/self/cgroup}
	v2='' memory='' cpu='' v2_path=/ memory_path=/ cpu_path=/
	if [ -r "$table" ]; then
		while IFS=: read -r _ controllers path; do
			case ,$controllers, in
			,,) v2_path=$path ;;
			*,memory,*) memory_path=$path ;;
			*,cpuacct,*) cpu_path=$path ;;
			esac
		done <"$table"
	fi
	for path in "$root$v2_path" "$root"; do
		[ ! -r "$path/memory.current" ] || { v2=$path && return; }
	done
	for path in "$root/memory" "$root/memory$memory_path"; do
		[ ! -r "$path/memory.usage_in_bytes" ] || memory=$path
	done
	for path in "$root/cpuacct" "$root/cpuacct$cpu_path"; do
		[ ! -r "$path/cpuacct.usage" ] || cpu=$path
	done
}

# number FILE: the file's first word, if it is a number
number() {
	value=''
	[ -r "$1" ] || return
	read -r value _ <"$1"
	only_digits
}

# entry FILE KEY: the number beside a key
entry() {
	value=''
	[ -r "$1" ] || return
	while read -r key value _; do
		[ "$key" != "$2" ] || { only_digits && return; }
	done <"$1"
	value=''
}

only_digits() {
	case $value in
	*[!0-9]* | ????????????????*) value='' ;; # "max", or version 1's way to say so: 2^63
	esac
}

# pressure FILE: per cent of the last ten seconds in which a process waited
pressure() {
	value=''
	[ -r "$1" ] || return
	read -r _ value _ <"$1"
	value=${value#avg10=}
}

sample_memory() {
	number "$1" && used=$value
	entry "$2" "$3" && idle=$value
	# Without the page cache that the kernel can reclaim, as the kubelet counts.
	[ -z "$used" ] || [ -z "$idle" ] || [ "$used" -lt "$idle" ] || used=$((used - idle))
}

sample_cgroup() {
	used='' idle='' limit='' kills='' busy='' psi_memory='' psi_cpu='' psi_io=''
	if [ -n "$v2" ]; then
		sample_memory "$v2/memory.current" "$v2/memory.stat" inactive_file
		number "$v2/memory.max" && limit=$value
		entry "$v2/memory.events" oom_kill && kills=$value
		entry "$v2/cpu.stat" usage_usec && busy=$value
		pressure "$v2/memory.pressure" && psi_memory=$value
		pressure "$v2/cpu.pressure" && psi_cpu=$value
		pressure "$v2/io.pressure" && psi_io=$value
		return
	fi
	if [ -n "$memory" ]; then
		sample_memory "$memory/memory.usage_in_bytes" "$memory/memory.stat" total_inactive_file
		number "$memory/memory.limit_in_bytes" && limit=$value
		entry "$memory/memory.oom_control" oom_kill && kills=$value
	fi
	[ -z "$cpu" ] || { read -r busy <"$cpu/cpuacct.usage" && busy=$((busy / 1000)); }
}

sample() {
	sample_cgroup
	disk=''
	for value in $(df -P "$work"); do
		case $value in
		[0-9]*%) disk=${value%\%} ;;
		esac
	done
	load=''
	[ ! -r /proc/loadavg ] || read -r load _ </proc/loadavg
	line="$(date +%s) ${used:--} ${limit:--} ${kills:--} ${psi_memory:--} ${psi_cpu:--} ${psi_io:--}"
	line="$line ${busy:--} ${disk:--} ${load:--}"
	printf '%s\n' "$line" >>"$vitals/samples"
	written=$((written + ${#line} + 1))
	if [ "$written" -gt $((most_bytes - 256)) ]; then # the next line may be too long
		mv -f "$vitals/samples" "$vitals/samples.old"
		written=0
	fi
}

# actions/runner starts a worker for its job, and the worker opens its own log. This sign of a job needs no
# pipe between the runner and its output, appears for the shortest job, and belongs to this runner alone;
# the list of processes may be the whole machine's. github-act-runner keeps a file while it has a job, which
# shows a job of a second or more.
workers() {
	case $program in
	act-runner) set -- "$work"/jobrun.json ;;
	*) set -- "$work"/_diag/Worker_* ;;
	esac
	if [ -e "$1" ]; then count=$#; else count=0; fi
}

mark_job() {
	[ ! -e "$vitals/job-started" ] || return
	workers
	[ "$count" -gt "$workers_before" ] || return
	now=$(date +%s)
	echo "$now" >"$vitals/.job-started" && mv -f "$vitals/.job-started" "$vitals/job-started"
}

# Runs once a second until the job has started, to record when; then only for samples.
sampler() {
	exec </dev/null >/dev/null 2>&1
	umask 022
	nap=''
	trap '[ -z "$nap" ] || kill "$nap"; exit 0' TERM
	mkdir -p "$vitals" && find_cgroup || exit 0
	left=0 written=0 step=1
	[ "$every" -gt 0 ] || step=0
	while kill -0 $$; do
		mark_job
		[ ! -e "$vitals/job-started" ] || step=$every
		if [ "$left" -le 0 ]; then
			sample
			left=$every
		fi
		sleep "$step" &
		nap=$!
		wait "$nap"
		left=$((left - step))
	done
}

# finish CODE: take the last sample, which shows whether memory ran out. Nothing that the job left on the
# stage may keep the container from ending, for example a pipe without a reader. So a second subshell
# kills the first after 2 s.
finish() {
	(
		exec </dev/null >/dev/null 2>&1
		umask 022
		mkdir -p "$vitals" && find_cgroup || exit 0
		written=0
		mark_job
		sample
		now=$(date +%s)
		echo "$now $1" >"$vitals/.ended" && mv -f "$vitals/.ended" "$vitals/ended"
	) &
	finisher=$!
	(
		exec </dev/null >/dev/null 2>&1
		nap=''
		trap '[ -z "$nap" ] || kill "$nap"; exit 0' TERM
		sleep 2 &
		nap=$!
		wait "$nap"
		kill -KILL "$finisher"
	) &
	watcher=$!
	trap '' TERM INT # it is ending
	wait "$finisher"
	kill -TERM "$watcher"
}

# The runner.

jit=''
[ ! -r "$stage/jit" ] || IFS= read -r jit <"$stage/jit"
rm -f "$stage/jit" || say "$stage/jit could not be deleted: make $stage writable for the runner's user."
if [ -z "$jit" ]; then
	say "no JIT is staged in $stage, so no runner is started."
	exit 66
fi

# find_program: the program of an image, in `work` and `$1`
find_program() {
	set -- "$PWD" /home/runner /actions-runner /runner /opt/actions-runner
	[ -z "${PADDOCK_RUNNER_HOME:-}" ] || set -- "$PADDOCK_RUNNER_HOME"
	for work in "$@"; do
		for found in bin/Runner.Listener github-act-runner; do
			case $program:$found in
			act-runner:bin/* | actions:github-*) continue ;;
			esac
			[ ! -x "$work/$found" ] || return 0
		done
	done
	say "there is no bin/Runner.Listener or github-act-runner: set PADDOCK_RUNNER_HOME to its directory."
	exit 72
}

work=$PWD
program=${PADDOCK_RUNNER:-}
if [ $# -eq 0 ]; then
	find_program
	set -- "$work/$found" run
fi
# As in domain/runners/dialects.py.
case $program:${1##*/} in
actions:* | act-runner:*) ;;
:Runner.Listener*) program=actions ;;
:github-act-runner*) program=act-runner ;;
*) program=unknown ;;
esac
workers
workers_before=$count

[ -z "$told" ] || exit 143
# The first line of every log: a log that begins otherwise has lost its beginning. Recovery reads in it whose
# words follow.
say "starting the runner ($program)"
(
	cd "$work" || exit 72
	# Exported only here: no other process gets the JIT in its environment.
	export ACTIONS_RUNNER_INPUT_JITCONFIG="$jit"
	export ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT="${ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT:-1}"
	export ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED="${ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED:-true}"
	export ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE="${ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE:-1}"
	exec "$@"
) &
child=$!
unset jit
[ -z "$told" ] || stop # it came before there was a child to tell

sampler &
sampling=$!

# bash can lose a child's exit code if a signal comes just when the child ends. It would then wait for ever
# for a process that it believes to run. The exit code is 143 in that case.
lost() {
	[ -n "${BASH_VERSION:-}" ] && ! kill -0 "$child" 2>/dev/null || return 1
	for pid in $(jobs -rp); do
		[ "$pid" != "$child" ] || return 0
	done
	return 1
}

# A trap interrupts `wait`, which then returns the signal's number instead of the child's code. So wait
# again as long as a signal came. A shell that has already returned the child's code answers 127.
code=''
while :; do
	told=''
	wait "$child" 2>/dev/null
	now=$?
	[ "$now" -ne 127 ] || [ -z "$code" ] || break
	code=$now
	[ -n "$told" ] && ! lost || break
done

{
	kill -TERM "$sampling"
	finish "$code"
} 2>/dev/null
exit "$code"
