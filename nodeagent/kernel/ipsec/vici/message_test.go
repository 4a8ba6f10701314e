package vici

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readme is the example of the protocol's description.
const readme = "\x03\x04key1\x00\x06value1" +
	"\x01\x08section1" +
	"\x01\x0bsub-section" + "\x03\x04key2\x00\x06value2" + "\x02" +
	"\x04\x05list1" + "\x05\x00\x05item1" + "\x05\x00\x05item2" + "\x06" +
	"\x02"

func readmeSection() Section {
	return Section{"key1": "value1", "section1": Section{
		"sub-section": Section{"key2": "value2"}, "list1": []string{"item1", "item2"},
	}}
}

func TestExampleOfTheReadme(t *testing.T) {
	have, err := decode([]byte(readme))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(readmeSection(), have); d != "" {
		t.Error(d)
	}
	if have.Sub("section1").Sub("sub-section").Text("key2") != "value2" || have.Sub("no").Sub("no").List("no") != nil {
		t.Error("accessors")
	}
	raw, err := encode(nil, readmeSection())
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(raw)
	if d := cmp.Diff(have, again); d != "" || err != nil {
		t.Error(d, err)
	}
}

func TestDecodeWrong(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"value too short", "\x03\x01a\x00\x05abc", "not a vici message: ends in the middle, byte 3 of 8"},
		{"no value", "\x03\x01a", "not a vici message: ends in the middle, byte 3 of 3"},
		{"no name", "\x03", "not a vici message: ends in the middle, byte 1 of 1"},
		{"end too much", "\x02", "not a vici message: a section or list ends that did not begin, or the other way round, byte 1 of 1"},
		{"section open", "\x01\x01a", "not a vici message: a section or list ends that did not begin, or the other way round, byte 3 of 3"},
		{"list open", "\x04\x01a", "not a vici message: a section or list ends that did not begin, or the other way round, byte 3 of 3"},
		{"pair in list", "\x04\x01a\x03\x01b\x00\x00\x06", "not a vici message: a section or list ends that did not begin, or the other way round, byte 4 of 9"},
		{"item outside", "\x05\x00\x01a", "not a vici message: a section or list ends that did not begin, or the other way round, byte 2 of 4"},
		{"type", "\x09\x01a", "not a vici message: an element is of an unknown type, byte 3 of 3"},
		{"twice", "\x03\x01a\x00\x00\x03\x01a\x00\x00", "not a vici message: a key occurs twice, byte 8 of 10"},
		{"deep", strings.Repeat("\x01\x01a", 40), "not a vici message: sections are nested too deep, byte 99 of 120"},
	}
	for _, tt := range tests {
		_, err := decode([]byte(tt.raw))
		if !errors.Is(err, ErrFormat) || err.Error() != tt.want {
			t.Errorf("%s: error %q, want %q", tt.name, err, tt.want)
		}
	}
}

func TestEncodeWrong(t *testing.T) {
	tests := []struct {
		name string
		in   Section
		want string
	}{
		{"type", Section{"a": 3}, "encode vici message: a is a int"},
		{"deep type", Section{"a": Section{"b": nil}}, "encode vici message: b is a <nil>"},
		{"no key", Section{"": "x"}, "encode vici message: key has 0 bytes (minimum 1, maximum 255)"},
		{"long key", Section{strings.Repeat("k", 256): "x"}, "encode vici message: key has 256 bytes (minimum 1, maximum 255)"},
		{"long value", Section{"a": strings.Repeat("x", 65536)}, "encode vici message: value of a has 65536 bytes (maximum 65535)"},
		{"long item", Section{"a": []string{strings.Repeat("x", 65536)}}, "encode vici message: value of a has 65536 bytes (maximum 65535)"},
	}
	for _, tt := range tests {
		if _, err := encode(nil, tt.in); err == nil || err.Error() != tt.want {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// FuzzDecode checks that decoded messages can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x07\x07list-sa" + readme))
	f.Add([]byte("\x01" + readme))
	f.Add([]byte{cmdUnknown})
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parse(raw)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Errorf("error %v", err)
			}
			return
		}
		if _, empty := p.message[""]; empty || hasEmpty(p.message) {
			return // may be read, is never written
		}
		out, err := encode(nil, p.message)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(out)
		if err != nil {
			t.Fatal(err)
		}
		if p.message == nil {
			p.message = Section{}
		}
		if d := cmp.Diff(p.message, again); d != "" {
			t.Error(d)
		}
	})
}

func hasEmpty(s Section) bool {
	for key, value := range s {
		if sub, ok := value.(Section); key == "" || ok && hasEmpty(sub) {
			return true
		}
	}
	return false
}
