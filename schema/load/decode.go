package load

import (
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/syntax"
	"hawser.dev/hawser/schema/tags"
)

// decoder decodes a node tree into a value, and collects errors.
type decoder struct {
	src      *document.Source
	list     diag.List
	badPaths map[string]bool // paths that could not be read
	tagCache tags.Cache
	tally    diag.Tally
}

// breadcrumb is the path from the top to a value. Its text is built on demand, because most values
// are valid.
type breadcrumb struct {
	parent *breadcrumb
	label  string
	item   bool        // of a list or map, in brackets
	rules  *tags.Field // of the field, if the element is a field
}

func (t *breadcrumb) field(name string) *breadcrumb { return &breadcrumb{parent: t, label: name} }

func (t *breadcrumb) index(name string) *breadcrumb {
	return &breadcrumb{parent: t, label: name, item: true}
}

func (t *breadcrumb) String() string {
	if t == nil {
		return ""
	}
	if t.item {
		return fieldpath.Key(t.parent.String(), t.label)
	}
	return fieldpath.Child(t.parent.String(), t.label)
}

// report adds an error for a value that cannot be read.
func (d *decoder) report(n *yaml.Node, t *breadcrumb, code, summary, hint string) {
	path := t.String()
	d.badPaths[path] = true
	if n.Kind != yaml.ScalarNode && d.src.InTemplate(n) { // read as a mapping in a mapping
		hint = document.HintTemplate
	}
	d.addError(n, diag.Diagnostic{Code: code, Path: path, Summary: summary, Hint: hint})
}

// addError adds an error at a node. Beyond the maximum it only counts it.
func (d *decoder) addError(n *yaml.Node, f diag.Diagnostic) {
	if !d.tally.Full(diag.Error) {
		f.Severity, f.Pos = diag.Error, d.src.NodePos(n)
		d.list = append(d.list, f)
	}
	d.tally[diag.Error]++
}

// decodeValue reads a node into v.
func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	if !d.checkPlain(n, t) {
		return
	}
	if v.Type() == schema.HostnamesType {
		d.decodeHostnames(n, v, t)
		return
	}
	if v.Type() == schema.DynamicType {
		d.decodeRules(n, v, t)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if syntax.IsNull(n) {
			d.report(n, t, "empty-value", "has no value", "remove the key, or give it a value")
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		d.decodeValue(n, v.Elem(), t)
	case reflect.Slice:
		d.decodeSlice(n, v, t)
	case reflect.Map:
		d.decodeMap(n, v, t)
	case reflect.Struct:
		if tags.IsText(v) {
			d.decodeScalar(n, v, t)
			return
		}
		d.decodeStruct(n, v, t)
	default:
		d.decodeScalar(n, v, t)
	}
}

// checkPlain rejects aliases, anchors and tags: other tools would read another value.
func (d *decoder) checkPlain(n *yaml.Node, t *breadcrumb) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.report(n, t, "yaml-alias", "anchors and aliases are not supported", "write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		d.report(n, t, "yaml-tag", "tags such as "+diag.Clip(n.Tag)+" are not supported", "remove the tag")
	default:
		return true
	}
	return false
}

// decodeStruct reads a mapping into a struct.
func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	if syntax.IsNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.reportWrongType(n, t, "a mapping", mappingHint(t, n))
		return
	}
	fields := d.tagCache.Of(v.Type())
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if d.isDuplicate(key, first, t.field(key.Value)) {
			continue
		}
		f := slices.IndexFunc(fields, func(f tags.Field) bool { return f.Name == key.Value })
		if f < 0 || key.Kind != yaml.ScalarNode {
			d.reportUnknown(key, fields, t)
			continue
		}
		at := t.field(key.Value)
		at.rules = &fields[f]
		target := v.Field(fields[f].Index)
		d.decodeValue(value, target, at)
		d.checkExplicitZero(value, target, fields[f], at)
	}
}

// isDuplicate reports whether an earlier key of the mapping has the same text, and adds an error.
func (d *decoder) isDuplicate(key *yaml.Node, first map[string]*yaml.Node, t *breadcrumb) bool {
	if key.Kind != yaml.ScalarNode {
		return false
	}
	earlier, dup := first[key.Value]
	if !dup {
		first[key.Value] = key
		return false
	}
	path := t.String()
	d.addError(key, diag.Diagnostic{Code: "duplicate-key", Path: path, Summary: "the key occurs twice",
		Hint: "remove one of the two, or join them", Related: []diag.Related{{Path: path, Pos: d.src.NodePos(earlier)}}})
	return true
}

// reportUnknown adds an error for a key that is not a field, with the most similar field.
func (d *decoder) reportUnknown(key *yaml.Node, fields []tags.Field, t *breadcrumb) {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].Name
	}
	if key.Kind != yaml.ScalarNode {
		d.report(key, t, "unknown-key", "a key must be a name", "keys here: "+strings.Join(names, ", "))
		return
	}
	hint := "keys here: " + strings.Join(names, ", ")
	near := syntax.Nearest(key.Value, names)
	switch {
	case key.Value == "<<":
		hint = "merge keys are not supported: write the values out"
	case near != "":
		hint = "did you mean " + near + "?"
		d.badPaths[t.field(near).String()] = true
	}
	d.report(key, t.field(key.Value), "unknown-key", "unknown key "+diag.Quote(key.Value), hint)
}

// decodeSlice reads a sequence.
func (d *decoder) decodeSlice(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	if syntax.IsNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		hint := ""
		if n.Kind == yaml.ScalarNode {
			hint = "write [" + diag.Clip(n.Value) + "]"
		}
		d.reportWrongType(n, t, "a list", hint)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	seen, naming := map[string]bool{}, tags.Naming(v.Type().Elem())
	for i, item := range n.Content {
		at := t.index(fieldpath.Label(seen, document.NodeName(item, naming), i))
		if syntax.IsNull(item) {
			d.report(item, at, "empty-value", "the item is empty", "remove it, or give it a value")
			continue
		}
		d.decodeValue(item, v.Index(i), at)
	}
}

// decodeMap reads a mapping with free keys.
func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	if syntax.IsNull(n) {
		return
	}
	v.Set(reflect.MakeMap(v.Type())) // a wrong value is not a missing value
	if n.Kind != yaml.MappingNode {
		d.reportWrongType(n, t, "a mapping", "write {key: value}")
		return
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := t.index(key.Value)
		name, item := "", reflect.New(v.Type().Elem()).Elem()
		if d.isDuplicate(key, first, at) || !d.checkPlain(key, at) {
			continue
		}
		if key.Value == "<<" {
			d.reportUnknown(key, nil, t)
			continue
		}
		if d.decodeScalar(key, reflect.ValueOf(&name).Elem(), at); d.badPaths[at.String()] {
			continue
		}
		d.decodeValue(value, item, at)
		v.SetMapIndex(reflect.ValueOf(name), item)
	}
}

// decodeRules reads a list, or one item without it.
func (d *decoder) decodeRules(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	rules := v.FieldByName("Rules")
	switch n.Kind {
	case yaml.SequenceNode:
		d.decodeSlice(n, rules, t)
		if len(n.Content) == 0 {
			d.report(n, t, "required", "is empty: at least one item is needed", "")
		}
	case yaml.MappingNode:
		rules.Set(reflect.MakeSlice(rules.Type(), 1, 1))
		v.FieldByName("Alone").SetBool(true)
		d.decodeStruct(n, rules.Index(0), t)
	default:
		d.reportWrongType(n, t, "a mapping, or a list of mappings", "write {namespaces: [...]}")
	}
}

// decodeHostnames reads a number or a list.
func (d *decoder) decodeHostnames(n *yaml.Node, v reflect.Value, t *breadcrumb) {
	if n.Kind == yaml.SequenceNode {
		d.decodeSlice(n, v.FieldByName("Names"), t)
		return
	}
	if n.Kind == yaml.MappingNode || n.Kind == yaml.ScalarNode && n.ShortTag() != "!!int" && !syntax.IsNull(n) {
		d.reportWrongType(n, t, "a number of pods or a list of hostnames", "")
		return
	}
	d.decodeScalar(n, v.FieldByName("Count"), t)
}
