// Package vici implements a client of strongSwan's charon: the Versatile IKE Control Interface,
// as described in the README of strongSwan's vici plugin
// (src/libcharon/plugins/vici/README.md). A message is a tree of sections. A client sends
// commands, and charon streams long results as events.
package vici

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Section is a message or a part of one: each key has a string, a list of strings ([]string) or
// another Section.
type Section map[string]any

// Text returns the string under a key; empty if absent.
func (s Section) Text(key string) string {
	text, _ := s[key].(string)
	return text
}

// List returns the list under a key; nil if absent.
func (s Section) List(key string) []string {
	list, _ := s[key].([]string)
	return list
}

// Sub returns the section under a key; nil if absent. A nil Section can be read.
func (s Section) Sub(key string) Section {
	sub, _ := s[key].(Section)
	return sub
}

// The types of elements in a message.
const (
	sectionStart = 1
	sectionEnd   = 2
	keyValue     = 3
	listStart    = 4
	listItem     = 5
	listEnd      = 6
)

const (
	maxName  = 1<<8 - 1
	maxValue = 1<<16 - 1
	maxDepth = 32
)

// ErrFormat means that bytes are not a message.
var ErrFormat = errors.New("not a vici message")

// encode appends the elements of a section, sorted by key.
func encode(out []byte, s Section) ([]byte, error) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if len(key) == 0 || len(key) > maxName {
			return nil, fmt.Errorf("encode vici message: key has %d bytes (minimum 1, maximum %d)",
				len(key), maxName)
		}
		var err error
		switch value := s[key].(type) {
		case string:
			out, err = appendValue(appendName(out, keyValue, key), key, value)
		case []string:
			out = appendName(out, listStart, key)
			for _, item := range value {
				if out, err = appendValue(append(out, listItem), key, item); err != nil {
					return nil, err
				}
			}
			out = append(out, listEnd)
		case Section:
			if out, err = encode(appendName(out, sectionStart, key), value); err == nil {
				out = append(out, sectionEnd)
			}
		default:
			err = fmt.Errorf("encode vici message: %s is a %T", key, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func appendName(out []byte, kind byte, name string) []byte {
	return append(append(out, kind, byte(len(name))), name...)
}

// appendValue never includes the value in an error, as it may be a private key.
func appendValue(out []byte, key, value string) ([]byte, error) {
	if len(value) > maxValue {
		return nil, fmt.Errorf("encode vici message: value of %s has %d bytes (maximum %d)", key, len(value), maxValue)
	}
	return append(binary.BigEndian.AppendUint16(out, uint16(len(value))), value...), nil
}

// decode reads a whole message.
func decode(raw []byte) (Section, error) {
	r := &reader{raw: raw}
	s, err := r.section(0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w, byte %d of %d", ErrFormat, err, len(raw)-len(r.raw), len(raw))
	}
	return s, nil
}

type reader struct{ raw []byte }

var (
	errTruncated    = errors.New("ends in the middle")
	errDepth        = errors.New("sections are nested too deep")
	errBalance      = errors.New("a section or list ends that did not begin, or the other way round")
	errDuplicateKey = errors.New("a key occurs twice")
	errType         = errors.New("an element is of an unknown type")
)

// section reads elements until the end of the section. Depth 0 is the message.
func (r *reader) section(depth int) (Section, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	s := Section{}
	for len(r.raw) > 0 {
		kind := r.raw[0]
		r.raw = r.raw[1:]
		if kind == sectionEnd {
			if depth == 0 {
				return nil, errBalance
			}
			return s, nil
		}
		key, err := r.text(1)
		if err != nil {
			return nil, err
		}
		if _, duplicate := s[key]; duplicate {
			return nil, errDuplicateKey
		}
		if s[key], err = r.value(kind, depth); err != nil {
			return nil, err
		}
	}
	if depth > 0 {
		return nil, errBalance
	}
	return s, nil
}

func (r *reader) value(kind byte, depth int) (any, error) {
	switch kind {
	case keyValue:
		return r.text(2)
	case listStart:
		return r.list()
	case sectionStart:
		return r.section(depth + 1)
	case listItem, listEnd:
		return nil, errBalance
	}
	return nil, errType
}

func (r *reader) list() ([]string, error) {
	out := []string{}
	for len(r.raw) > 0 {
		kind := r.raw[0]
		r.raw = r.raw[1:]
		if kind == listEnd {
			return out, nil
		}
		if kind != listItem {
			return nil, errBalance
		}
		item, err := r.text(2)
		if err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return nil, errBalance
}

// text reads a text that follows its length of lengthSize bytes.
func (r *reader) text(lengthSize int) (string, error) {
	if len(r.raw) < lengthSize {
		return "", errTruncated
	}
	length := int(r.raw[0])
	if lengthSize == 2 {
		length = int(binary.BigEndian.Uint16(r.raw))
	}
	if len(r.raw) < lengthSize+length {
		return "", errTruncated
	}
	text := string(r.raw[lengthSize : lengthSize+length])
	r.raw = r.raw[lengthSize+length:]
	return text, nil
}
