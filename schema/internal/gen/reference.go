package main

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/markdown"
)

const intro = `# Reference of the topology file

<!-- Generated from the types in schema/; change them and run go generate ./schema. -->

For users who write a topology: every field of ` + "`clusterset.yaml`" + `, one YAML document.
` + "`clusterset.example.yaml`" + ` is a short example, [clusterset.full.yaml](clusterset.full.yaml) has every
setting, and with ` + "`clusterset.schema.json`" + ` an editor completes and checks the file.

- An unknown or repeated key is an error. Text fields accept no unquoted numbers. The words yes, no,
  on, off, y and n need quotes in text fields, because YAML 1.1 reads them as booleans.
- There are no anchors, aliases or tags, and no second document.
- An address or prefix is of either family unless the description says IPv4 or IPv6. A prefix has no
  host bits set.
- A duration is a number with a unit: ` + "`250ms`, `25s`, `5m`, `1h30m`" + `.
- Messages name a value by its path below spec, list items by their names:
  ` + "`clusters[g1].podCIDRs[0]`, `exports[sample/web].ports[0].name`" + `.
- A name is a DNS label: at most 63 lower-case letters, digits and hyphens, no hyphen first or last.
`

// reference returns the page that lists every field.
func reference(types map[string]structDef) []byte {
	var out strings.Builder
	out.WriteString(intro)
	section(&out, types, "ClusterSet", "")
	return []byte(out.String())
}

// section writes the list of a struct's fields and then the sections of its parts.
func section(out *strings.Builder, types map[string]structDef, name, path string) {
	def := types[name]
	title := path
	if path == "" {
		title = "The document"
	} else {
		title = "`" + title + "`"
	}
	fmt.Fprintf(out, "\n## %s\n\n%s\n", title, markdown.Paragraph(def.doc))
	for _, f := range def.fields {
		out.WriteString(markdown.Item(fmt.Sprintf("**`%s`** (%s%s): %s", f.name, typeText(f), defaultText(f), escape(f.doc))))
	}
	for _, f := range def.fields {
		inner, suffix := f.typ, ""
		for inner.kind == kindList || inner.kind == kindRules {
			inner, suffix = *inner.elem, suffix+"[]"
		}
		if inner.kind == kindStruct {
			section(out, types, inner.name, strings.TrimPrefix(path+"."+f.name+suffix, "."))
		}
	}
}

// typeText names the type of a field with its values or its range.
func typeText(f fieldDef) string {
	text := typeName(f.typ, false)
	if len(f.enum) > 0 {
		text = "`" + strings.Join(f.enum, "` or `") + "`"
	}
	if f.bounded() {
		text += ", " + f.rangeText()
	}
	return text
}

func typeName(t valueType, plural bool) string {
	s := ""
	if plural {
		s = "s"
	}
	switch t.kind {
	case kindList:
		return "list" + s + " of " + typeName(*t.elem, true)
	case kindMap:
		return "mapping" + s + " of names to " + typeName(*t.elem, true)
	case kindStruct:
		return "mapping" + s
	case kindText, kindDegrees, kindBool, kindHostnames, kindRules:
		return t.kind
	case kindPrefix, kindAddress:
		if plural {
			return t.kind + "es"
		}
	}
	return t.kind + s
}

func defaultText(f fieldDef) string {
	switch {
	case f.required:
		return ", required"
	case f.def == "":
		return ""
	case f.typ.kind == kindList:
		return ", default `[" + f.def + "]`"
	}
	return ", default `" + f.def + "`"
}

// escape escapes HTML in a text.
func escape(text string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(text)
}
