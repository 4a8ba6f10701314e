package trace

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Filtered gives how many packets of any traffic the kernel dropped so far in the
// thread's network namespace, because their source is reached by another link (rp_filter).
func Filtered() (int, error) {
	const path, counter = "/proc/thread-self/net/netstat", "IPReversePathFilter"
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read counters of the network: %w", err)
	}
	var names []string // a line of names, then one of their values
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		i := slices.Index(names, counter)
		if i < 0 {
			names = fields
			continue
		}
		if i >= len(fields) {
			break
		}
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0, fmt.Errorf("read %s in %s: %w", counter, path, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("read %s: it has no %s", path, counter)
}
