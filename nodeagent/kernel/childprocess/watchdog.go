package childprocess

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Usage is the CPU time of a process's threads, and the time that they waited for a CPU.
type Usage struct{ Ran, Waited time.Duration }

// clockTick is the unit of processor times in /proc: USER_HZ is 100 on all architectures of Go.
const clockTick = 10 * time.Millisecond

// UsageOf returns the usage of a process since its start. Parts that the kernel does not report
// are 0.
func UsageOf(pid int) Usage {
	var u Usage
	dir := "/proc/" + strconv.Itoa(pid)
	if raw, err := os.ReadFile(dir + "/stat"); err == nil {
		// proc_pid_stat(5): after the name, which may contain anything, the 12th and 13th
		// fields are the ticks in user and kernel mode.
		if fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]); len(fields) >= 13 {
			user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
			system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
			u.Ran = time.Duration(user+system) * clockTick
		}
	}
	// Documentation/scheduler/sched-stats.rst: the second field is the time on a run queue, ns.
	threads, _ := filepath.Glob(dir + "/task/*/schedstat")
	for _, file := range threads {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if fields := bytes.Fields(raw); len(fields) > 1 {
			waited, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			u.Waited += time.Duration(waited)
		}
	}
	return u
}

// Watchdog finds processes that hang: they do not reply, although they could. It is not safe for
// concurrent use.
type Watchdog struct {
	// MinMisses is the number of missed replies before a process can hang.
	MinMisses int
	// Timeout is the silence after which a process counts as hung, without the excused part.
	Timeout time.Duration
	// MaxTimeout is the silence after which a process hangs, excused or not.
	MaxTimeout time.Duration
	// Excused returns the part of a silence that a machine without free processors explains.
	// during is the usage of the process during the silence.
	Excused func(silence time.Duration, during Usage) time.Duration

	silences map[int]silence // by process
}

// silence is the time in which a process did not reply.
type silence struct {
	since  time.Time
	usage  Usage // at that time
	misses int
}

// Replied records a reply of a process, or that it has ended.
func (w *Watchdog) Replied(pid int) { delete(w.silences, pid) }

// Reset forgets the silence of all processes.
func (w *Watchdog) Reset() { w.silences = nil }

// Missed records that a process did not reply to a request that was sent at a time. It returns the
// duration of the silence and whether the process hangs.
func (w *Watchdog) Missed(pid int, sent, now time.Time, usage Usage) (duration time.Duration, hangs bool) {
	s, ok := w.silences[pid]
	if !ok {
		s = silence{since: sent, usage: usage}
	}
	s.misses++
	if w.silences == nil {
		w.silences = map[int]silence{}
	}
	w.silences[pid] = s
	duration = now.Sub(s.since)
	during := Usage{Ran: max(usage.Ran-s.usage.Ran, 0), Waited: max(usage.Waited-s.usage.Waited, 0)}
	hangs = s.misses >= w.MinMisses && (duration-w.Excused(duration, during) >= w.Timeout || duration >= w.MaxTimeout)
	return duration, hangs
}

// Cause returns the text for logs of a process that was killed after a silence.
func Cause(silent time.Duration) string {
	return fmt.Sprintf("no reply for %v", silent.Round(100*time.Millisecond))
}
