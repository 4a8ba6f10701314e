package projection

import (
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// Memo remembers what is long to compute and seldom changes from one State to
// the next: the slots of each address. It changes no result. The zero Memo is
// empty and ready; it may be used from several goroutines.
type Memo struct {
	mu        sync.Mutex
	last, now map[string]slotted // of the call before, and since
}

// slotted is the slots of one entry, and the backend of the first one. Nobody may
// change the elements.
type slotted struct {
	elements []desired.Element
	first    netip.Addr
}

// begin forgets what the call before did not ask for.
func (m *Memo) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.now = m.now, make(map[string]slotted, len(m.now))
}

func (m *Memo) slots(e *entry, count int) slotted {
	key := e.memoKey()
	m.mu.Lock()
	s, known := m.now[key]
	if !known {
		s, known = m.last[key]
	}
	m.mu.Unlock()
	if !known {
		s = e.slots(count)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil {
		m.now = map[string]slotted{}
	}
	m.now[key] = s
	return s
}

// memoKey is all that decides the elements of an entry.
func (e *entry) memoKey() string {
	var key strings.Builder
	key.WriteString(serviceKey(e.addr, e.protocol, e.port))
	key.WriteByte('\n')
	key.WriteString(e.origin)
	for _, t := range e.targets {
		key.WriteByte('\n')
		key.WriteString(t.key)
		key.WriteByte(' ')
		key.WriteString(targetText(t.addr, t.port))
		key.WriteByte(' ')
		key.WriteString(strconv.Itoa(t.weight))
	}
	return key.String()
}

func (e *entry) slots(count int) slotted {
	values := make([]string, len(e.targets))
	for i, t := range e.targets {
		values[i] = targetText(t.addr, t.port)
	}
	ids := slotIDs(serviceKey(e.addr, e.protocol, e.port), count)
	out := make([]desired.Element, count)
	assigned := assign(count, e.targets)
	for slot, i := range assigned {
		out[slot] = desired.Element{Set: desired.SetSlots, Family: fabric.Family(e.addr), ID: ids[slot], Value: values[i], Origin: e.origin}
	}
	return slotted{elements: out, first: e.targets[assigned[0]].addr}
}
