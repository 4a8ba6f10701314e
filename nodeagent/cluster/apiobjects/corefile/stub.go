package corefile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
)

// stubText returns the text for a configuration without foreign stub domains. From its exact form
// withoutStub recognises that the text was empty before.
func (f Forward) stubText() string {
	return "{\n" + strings.Join(f.entries("  ", " "), ",\n") + "\n}\n"
}

// entries returns the JSON members of Hawser's stub domains.
func (f Forward) entries(indent, space string) []string {
	servers := make([]string, len(f.Servers))
	for i, s := range f.Servers {
		servers[i] = quote(s.String())
	}
	out := make([]string, len(f.Zones))
	for i, zone := range f.Zones {
		out[i] = indent + quote(zone) + ":" + space + "[" + strings.Join(servers, ",") + "]"
	}
	return out
}

func quote(text string) string {
	raw, _ := json.Marshal(text) // never fails for a string
	return string(raw)
}

// InsertStub returns the stubDomains of kube-dns with Hawser's entries at the front. stubDomains is
// a JSON object that maps domains to the addresses of their servers; empty text means no entries.
// All other bytes stay. It returns the same errors as Insert.
func InsertStub(text string, f Forward) (string, error) {
	bare, _, err := withoutStub(text, f)
	if err != nil {
		return text, err
	}
	var reserved error
	if f.Zones, reserved = f.unreserved(f.Zones); len(f.Zones) == 0 {
		return bare, reserved
	}
	if bare == "" {
		return f.stubText(), reserved
	}
	members, err := membersOf(bare)
	if err != nil {
		return text, err
	}
	var first error
	f.Zones = slices.Clone(f.Zones)
	for _, m := range members {
		if i := slices.Index(f.Zones, strings.ToLower(strings.TrimSuffix(m.name, "."))); i >= 0 {
			f.Zones = slices.Delete(f.Zones, i, i+1)
			if first == nil {
				first = zoneConflict("", 1+strings.Count(bare[:m.start], "\n"), "a foreign stub domain is "+m.name)
			}
		}
	}
	first = cmp.Or(first, reserved)
	if len(f.Zones) == 0 {
		return bare, first
	}
	ours := strings.Join(f.entries("", ""), ",")
	if len(members) > 0 {
		ours += ","
	}
	open := strings.IndexByte(bare, '{') + 1
	return bare[:open] + ours + bare[open:], first
}

// RemoveStub returns stubDomains without Hawser's entries: the inverse of InsertStub. It returns an
// empty text if the text was empty before InsertStub.
func RemoveStub(text string, f Forward) (string, error) {
	bare, _, err := withoutStub(text, f)
	return bare, err
}

// SplitStub returns the zones of Hawser's entries, and the text without them.
func SplitStub(text string, f Forward) (ours []string, rest string, err error) {
	rest, ours, err = withoutStub(text, f)
	return ours, rest, err
}

// withoutStub removes each entry that maps one of the zones to Hawser's servers. No other writer
// uses the addresses of these servers.
func withoutStub(text string, f Forward) (rest string, cut []string, err error) {
	if text == "" {
		return "", nil, nil
	}
	members, err := membersOf(text)
	if err != nil {
		return text, nil, err
	}
	written := f
	written.Zones, _ = f.unreserved(f.Zones)
	whole := text == f.stubText() || text == written.stubText()
	for i := len(members) - 1; i >= 0; i-- {
		m := members[i]
		if !slices.Contains(f.Zones, m.name) || !f.pointsHere(m.servers) {
			continue
		}
		cut = append(cut, m.name)
		start, end := m.start, m.end
		switch {
		case i+1 < len(members):
			end += strings.IndexByte(text[end:], ',') + 1
		case i > 0:
			// Remove the comma before the last entry too.
			start = members[i-1].end + strings.IndexByte(text[members[i-1].end:], ',')
		}
		text = text[:start] + text[end:]
		members = slices.Delete(members, i, i+1)
	}
	slices.Reverse(cut)
	if whole {
		return "", cut, nil
	}
	return text, cut, nil
}

func (f Forward) pointsHere(servers []string) bool {
	return len(servers) > 0 && !slices.ContainsFunc(servers, func(s string) bool {
		return !slices.ContainsFunc(f.Servers, func(a netip.Addr) bool { return a.String() == s })
	})
}

// stubDomain is one entry of stubDomains.
type stubDomain struct {
	name       string
	servers    []string
	start, end int // offsets in the text, from the opening quote of the name
}

func membersOf(text string) ([]stubDomain, error) {
	raw := []byte(text)
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, notJSON(text, d.InputOffset(), err)
	}
	var out []stubDomain
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, notJSON(text, d.InputOffset(), err)
		}
		m := stubDomain{name: t.(string), end: int(d.InputOffset())} // a key is a string
		m.start = bytes.LastIndexByte(raw[:m.end-1], '"')
		if err := d.Decode(&m.servers); err != nil {
			return nil, notJSON(text, d.InputOffset(), err)
		}
		m.end = int(d.InputOffset())
		out = append(out, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, notJSON(text, d.InputOffset(), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, notJSON(text, d.InputOffset(), errors.New("something follows the object"))
	}
	return out, nil
}

func notJSON(text string, offset int64, err error) error {
	if err == nil {
		err = errors.New("not an object")
	}
	return diag.Diagnostic{
		Severity: diag.Error, Code: Unreadable, Summary: "stubDomains: " + err.Error(),
		Pos:  diag.Pos{Line: 1 + strings.Count(text[:min(int(offset), len(text))], "\n"), Column: 1},
		Hint: `write a JSON object of domains and lists of addresses, such as {"example.org": ["192.0.2.1"]}; until then Hawser changes nothing`,
	}
}
