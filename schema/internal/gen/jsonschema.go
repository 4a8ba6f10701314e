package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// node is one JSON Schema (draft 7, which editors support).
type node struct {
	Schema      string     `json:"$schema,omitempty"`
	Title       string     `json:"title,omitempty"`
	Description string     `json:"description,omitempty"`
	Type        any        `json:"type,omitempty"`
	Default     any        `json:"default,omitempty"`
	Const       *int       `json:"const,omitempty"`
	Enum        []string   `json:"enum,omitempty"`
	Minimum     *int       `json:"minimum,omitempty"`
	Maximum     *int       `json:"maximum,omitempty"`
	Pattern     string     `json:"pattern,omitempty"`
	AnyOf       []*node    `json:"anyOf,omitempty"`
	MinItems    int        `json:"minItems,omitempty"`
	Items       *node      `json:"items,omitempty"`
	Properties  properties `json:"properties,omitempty"`
	Required    []string   `json:"required,omitempty"`
	Additional  any        `json:"additionalProperties,omitempty"`
}

// properties are fields in their order.
type properties []property

type property struct {
	name string
	node *node
}

// MarshalJSON writes an object in the order of the fields.
func (p properties) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, prop := range p {
		if i > 0 {
			out.WriteByte(',')
		}
		raw, err := plainJSON(prop.node)
		if err != nil {
			return nil, err
		}
		out.WriteString(strconv.Quote(prop.name) + ":")
		out.Write(raw)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// plainJSON does not escape < and >.
func plainJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// Patterns of text values, for completion and early errors in editors. The loader decides.
const (
	prefixPattern   = `^[0-9a-fA-F:.]+/[0-9]{1,3}$`
	addressPattern  = `^[0-9a-fA-F:.]+$`
	durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
)

// jsonSchema returns the JSON Schema of the topology file.
func jsonSchema(types map[string]structDef) ([]byte, error) {
	root := object(types, types["ClusterSet"])
	root.Schema = "http://json-schema.org/draft-07/schema#"
	root.Title = "Hawser ClusterSet"
	root.Description = types["ClusterSet"].doc
	raw, err := plainJSON(root)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("indent schema: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func object(types map[string]structDef, def structDef) *node {
	out := &node{Type: "object", Additional: false}
	for _, f := range def.fields {
		out.Properties = append(out.Properties, property{f.name, fieldNode(types, f)})
		if f.required {
			out.Required = append(out.Required, f.name)
		}
	}
	return out
}

func fieldNode(types map[string]structDef, f fieldDef) *node {
	n := typeNode(types, f.typ)
	n.Description = f.doc
	if f.bounded() {
		n.Description += " Range: " + f.rangeText() + "."
	}
	n.Default = defaultValue(f)
	n.Enum = f.enum
	if len(f.enum) > 0 && f.def == "" && !f.required {
		n.Enum = append([]string{""}, f.enum...)
	}
	if f.typ.kind == kindList && f.required {
		n.MinItems = 1
	}
	if !f.bounded() {
		return n
	}
	switch f.typ.kind {
	case kindNumber, kindDegrees:
		limits(n, f, f.zeroIsUnset())
	case kindMap:
		limits(n.Additional.(*node), f, false)
	}
	return n
}

// limits sets the range of a number, and accepts 0 in addition if orZero is set.
func limits(n *node, f fieldDef, orZero bool) {
	low, high, zero := number(f.min), number(f.max), 0
	if orZero {
		n.AnyOf = []*node{{Const: &zero}, {Minimum: &low, Maximum: &high}}
		return
	}
	n.Minimum, n.Maximum = &low, &high
}

// number reads a tag that a test of package schema uses as a number too.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic("gen: tag is not a number: " + text)
	}
	return n
}

func typeNode(types map[string]structDef, t valueType) *node {
	switch t.kind {
	case kindNumber:
		return &node{Type: "integer"}
	case kindDegrees:
		return &node{Type: "number"}
	case kindBool:
		return &node{Type: "boolean"}
	case kindDuration:
		return &node{Type: "string", Pattern: durationPattern}
	case kindPrefix:
		return &node{Type: "string", Pattern: prefixPattern}
	case kindAddress:
		return &node{Type: "string", Pattern: addressPattern}
	case kindHostnames:
		return &node{AnyOf: []*node{{Type: "integer"}, {Type: "array", Items: &node{Type: "string"}}}}
	case kindRules:
		item := typeNode(types, *t.elem)
		return &node{AnyOf: []*node{item, {Type: "array", Items: item, MinItems: 1}}}
	case kindList:
		return &node{Type: "array", Items: typeNode(types, *t.elem)}
	case kindMap:
		return &node{Type: "object", Additional: typeNode(types, *t.elem)}
	case kindStruct:
		n := object(types, types[t.name])
		n.Description = types[t.name].doc
		return n
	}
	return &node{Type: "string"}
}

// defaultValue returns a default as a JSON value.
func defaultValue(f fieldDef) any {
	if f.def == "" {
		return nil
	}
	switch f.typ.kind {
	case kindNumber:
		return number(f.def)
	case kindBool:
		return f.def == "true"
	case kindList:
		var list []any
		for part := range strings.SplitSeq(f.def, ",") {
			list = append(list, defaultValue(fieldDef{def: part, typ: *f.typ.elem}))
		}
		return list
	}
	return f.def
}
