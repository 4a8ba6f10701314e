package projection

import (
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// Memo caches the slots of each address between calls: they are expensive to compute and seldom
// change. It does not affect the result. The zero Memo is empty and ready for use. It is safe
// for concurrent use.
type Memo struct {
	mu                sync.Mutex
	previous, current map[string]slotSet // entries of the previous call, and of the current one
}

// slotSet has the slots of one entry, and the backend of the first slot. The elements are shared
// and must not be modified.
type slotSet struct {
	elements []desired.Element
	first    netip.Addr
}

// rotate drops the entries that the previous call did not use.
func (m *Memo) rotate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.previous, m.current = m.current, make(map[string]slotSet, len(m.current))
}

func (m *Memo) slots(e *entry, count int) slotSet {
	key := e.memoKey()
	m.mu.Lock()
	s, cached := m.current[key]
	if !cached {
		s, cached = m.previous[key]
	}
	m.mu.Unlock()
	if !cached {
		s = e.slots(count)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		m.current = map[string]slotSet{}
	}
	m.current[key] = s
	return s
}

// memoKey returns a key that contains all inputs of the entry's slots.
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

func (e *entry) slots(count int) slotSet {
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
	return slotSet{elements: out, first: e.targets[assigned[0]].addr}
}
