package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

// MarshalJSON writes the number or the list.
func (h Hostnames) MarshalJSON() ([]byte, error) {
	if len(h.Names) > 0 {
		return json.Marshal(h.Names)
	}
	return json.Marshal(h.Count)
}

// UnmarshalJSON reads a number or a list of names.
func (h *Hostnames) UnmarshalJSON(raw []byte) error {
	*h = Hostnames{}
	if err := json.Unmarshal(raw, &h.Count); err == nil {
		return nil
	}
	if err := json.Unmarshal(raw, &h.Names); err != nil {
		return fmt.Errorf("read hostnames: want a number or a list of names: %w", err)
	}
	return nil
}

// Hosts returns the hosts that need a global address: pod hostnames, or "*-N" for the
// pod with ordinal N of any StatefulSet.
func (h Hostnames) Hosts() []string {
	if len(h.Names) > 0 {
		return h.Names
	}
	hosts := make([]string, 0, max(h.Count, 0))
	for i := range h.Count {
		hosts = append(hosts, "*-"+strconv.Itoa(i))
	}
	return hosts
}

// Len returns the number of hosts. It allocates no list.
func (h Hostnames) Len() int {
	if len(h.Names) > 0 {
		return len(h.Names)
	}
	return max(h.Count, 0)
}

// MarshalJSON writes the list of rules, or the single rule.
func (d DynamicExports) MarshalJSON() ([]byte, error) {
	if d.Alone && len(d.Rules) == 1 {
		return json.Marshal(d.Rules[0])
	}
	return json.Marshal(d.Rules)
}

// UnmarshalJSON reads a list of rules, or a single rule.
func (d *DynamicExports) UnmarshalJSON(raw []byte) error {
	*d = DynamicExports{Rules: make([]DynamicRule, 1)}
	if err := json.Unmarshal(raw, &d.Rules[0]); err == nil {
		d.Alone = true
		return nil
	}
	if err := json.Unmarshal(raw, &d.Rules); err != nil {
		return fmt.Errorf("read dynamicExports: want a mapping or a list of mappings: %w", err)
	}
	return nil
}

// Types with two forms in the file.
var (
	HostnamesType = reflect.TypeFor[Hostnames]()
	DynamicType   = reflect.TypeFor[DynamicExports]()
)
