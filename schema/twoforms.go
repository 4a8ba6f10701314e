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

// Hosts gives what the allocated addresses belong to: "*-N" for the pod of any
// StatefulSet with ordinal N, or a pod's hostname.
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

// Len counts the hosts without listing them.
func (h Hostnames) Len() int {
	if len(h.Names) > 0 {
		return len(h.Names)
	}
	return max(h.Count, 0)
}

// MarshalJSON writes the list, or the item alone.
func (d DynamicExports) MarshalJSON() ([]byte, error) {
	if d.Alone && len(d.Rules) == 1 {
		return json.Marshal(d.Rules[0])
	}
	return json.Marshal(d.Rules)
}

// UnmarshalJSON reads a list, or one item alone.
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

// Types that the file may write in two forms.
var (
	HostnamesType = reflect.TypeFor[Hostnames]()
	DynamicType   = reflect.TypeFor[DynamicExports]()
)
