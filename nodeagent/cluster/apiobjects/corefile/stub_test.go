package corefile

import (
	"errors"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
)

func TestInsertStub(t *testing.T) {
	t.Parallel()
	const entries = `"clusterset.local":["169.254.73.53"],"0.243.in-addr.arpa":["169.254.73.53"]`
	alone := "{\n  \"clusterset.local\": [\"169.254.73.53\"],\n  \"0.243.in-addr.arpa\": [\"169.254.73.53\"]\n}\n"
	tests := []struct{ name, text, want string }{
		{"none", "", alone},
		{"alone", alone, alone},
		{"empty object", "{}", "{" + entries + "}"},
		{"empty object with a space", " { }\n", " {" + entries + " }\n"},
		{"others", "{\n \"acme.local\": [\"1.2.3.4\", \"1.2.3.5\"]\n}\n", "{" + entries + ",\n \"acme.local\": [\"1.2.3.4\", \"1.2.3.5\"]\n}\n"},
		{"one is missing", `{"clusterset.local":["169.254.73.53"],"a":[]}`, "{" + entries + `,"a":[]}`},
		{"at the end", `{"a":["1.2.3.4"] , "clusterset.local":["169.254.73.53"]}`, "{" + entries + `,"a":["1.2.3.4"] }`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have, err := InsertStub(tt.text, forward())
			if err != nil || have != tt.want {
				t.Fatalf("have %q, %v\nwant %q", have, err, tt.want)
			}
			if again, err := InsertStub(have, forward()); err != nil || again != have {
				t.Errorf("inserted twice %q, %v", again, err)
			}
		})
	}
}

func TestInvalidStub(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, code, want string }{
		{"no object", "[]", Unreadable, "1:1: error: stubDomains: not an object"},
		{"no JSON", "{\n'a': []}", Unreadable, "2:1: error: stubDomains: invalid character"},
		{"no list", `{"a": "b"}`, Unreadable, "1:1: error: stubDomains: json: cannot"},
		{"not closed", `{"a": []`, Unreadable, "1:1: error: stubDomains: EOF"},
		{"two", `{}{}`, Unreadable, "1:1: error: stubDomains: something follows the object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have, err := InsertStub(tt.text, forward())
			var d diag.Diagnostic
			if have != tt.text || !errors.As(err, &d) || d.Code != tt.code || d.Hint == "" {
				t.Fatalf("text %q, error %#v", have, err)
			}
			if d.Pos.File = "F"; !strings.HasPrefix(d.Error(), "F:"+tt.want) {
				t.Errorf("error %q\n want %q", d.Error(), "F:"+tt.want)
			}
		})
	}
}

func TestStubConflict(t *testing.T) {
	t.Parallel()
	const reverse = `"0.243.in-addr.arpa":["169.254.73.53"]`
	tests := []struct{ name, text, want, message string }{
		{"taken", "{\n\"clusterset.local.\": [\"10.1.1.1\"]}", "{" + reverse + ",\n\"clusterset.local.\": [\"10.1.1.1\"]}",
			"2:1: error: a foreign stub domain is clusterset.local."},
		{"in part", `{"clusterset.local": ["169.254.73.53", "10.1.1.1"]}`, "{" + reverse + `,"clusterset.local": ["169.254.73.53", "10.1.1.1"]}`,
			"1:1: error: a foreign stub domain is clusterset.local"},
		{"with ours", `{"clusterset.local": ["169.254.73.53"],"clusterset.local": ["10.1.1.1"],"0.243.in-addr.arpa":[]}`,
			`{"clusterset.local": ["10.1.1.1"],"0.243.in-addr.arpa":[]}`, "1:1: error: a foreign stub domain is clusterset.local"},
	}
	for _, tt := range tests {
		have, err := InsertStub(tt.text, forward())
		var d diag.Diagnostic
		if have != tt.want || !errors.As(err, &d) || d.Code != ZoneConflict {
			t.Errorf("%s: text %q, error %v", tt.name, have, err)
		}
		if d.Pos.File = "F"; d.Error() != "F:"+tt.message {
			t.Errorf("%s: error %q\n want %q", tt.name, d.Error(), tt.message)
		}
	}
}

// FuzzRestoreStub adds Hawser's stub domains to any text and removes them again.
func FuzzRestoreStub(f *testing.F) {
	for _, text := range []string{"", "{}", " { }\n", `{"a":["b"]}`, `{"clusterset.local":["169.254.73.53"]}`, "{\n \"a\\\"\": [ ] ,\n\"b\":[\"1\"]}", "[]", forward().stubText()} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		with, err := InsertStub(text, forward())
		var d diag.Diagnostic
		if err != nil {
			if errors.As(err, &d); d.Code != ZoneConflict && with != text {
				t.Errorf("text changed despite error %v", err)
			}
			if d.Code != ZoneConflict {
				return
			}
		}
		bare, err := RemoveStub(text, forward())
		if err != nil {
			t.Fatal(err)
		}
		if have, err := RemoveStub(with, forward()); err != nil || have != bare {
			t.Errorf("removed again %q, want %q (%v)", have, bare, err)
		}
		if again, err := InsertStub(with, forward()); (err != nil) != (d.Code == ZoneConflict) || again != with {
			t.Errorf("inserted twice %q, once %q (%v)", again, with, err)
		}
		if ours, rest, err := SplitStub(with, forward()); err != nil || (len(ours) == 2) == (d.Code == ZoneConflict) || rest != bare {
			t.Errorf("ours %v, rest %q (%v)", ours, rest, err)
		}
	})
}

// TestReservedStub checks that InsertStub omits a domain of the cluster's own DNS.
func TestReservedStub(t *testing.T) {
	t.Parallel()
	f := forward()
	f.Domains = []string{"local", "clusterset.local"}
	f.Zones = append([]string{"local"}, f.Zones...)
	without, err := InsertStub("", forward())
	if err != nil {
		t.Fatal(err)
	}
	others := `{"acme.example":["1.2.3.4"]}`
	withOthers, err := InsertStub(others, forward())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ text, want string }{
		{"", without}, {without, without}, {others, withOthers}, {withOthers, withOthers},
		{`{"local":["169.254.73.53"],` + others[1:], withOthers},
	} {
		have, err := InsertStub(tt.text, f)
		var d diag.Diagnostic
		if have != tt.want || !errors.As(err, &d) || d.Code != Reserved || !strings.HasPrefix(d.Summary, "local contains cluster.local") {
			t.Errorf("InsertStub(%q) = %q, %v", tt.text, have, err)
		}
	}
	if have, err := RemoveStub(without, f); have != "" || err != nil {
		t.Errorf("RemoveStub = %q, %v", have, err)
	}
	f.Zones, f.Domains = []string{"local"}, []string{"local"}
	for _, text := range []string{"", others} {
		if have, err := InsertStub(text, f); have != text || err == nil {
			t.Errorf("InsertStub(%q) without another zone = %q, %v", text, have, err)
		}
	}
}
