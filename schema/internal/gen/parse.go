package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// Kinds of a value in the file.
const (
	kindText      = "text"
	kindNumber    = "number"
	kindDegrees   = "number with a fraction"
	kindBool      = "true or false"
	kindDuration  = "duration"
	kindPrefix    = "prefix"
	kindAddress   = "address"
	kindHostnames = "number or list of text"
	kindRules     = "mapping or list of mappings"
	kindList      = "list"
	kindMap       = "mapping"
	kindStruct    = "struct"
)

// kindOf returns the kind of a Go type by its name in the sources.
func kindOf(name string) string {
	switch name {
	case "string":
		return kindText
	case "int":
		return kindNumber
	case "float64":
		return kindDegrees
	case "bool":
		return kindBool
	case "fabric.Duration":
		return kindDuration
	case "netip.Prefix":
		return kindPrefix
	case "netip.Addr":
		return kindAddress
	case "Hostnames":
		return kindHostnames
	case "DynamicExports":
		return kindRules
	}
	return kindStruct
}

// valueType is the type of a field.
type valueType struct {
	kind string
	name string     // of a struct
	elem *valueType // of a list or mapping
}

// fieldDef is a field of a struct in the file.
type fieldDef struct {
	name     string
	doc      string
	typ      valueType
	def      string
	enum     []string
	required bool
	pointer  bool // 0 is not the same as a missing field
	min, max string
}

// bounded reports whether the field's value has a range.
func (f fieldDef) bounded() bool { return f.max != "" }

// zeroIsUnset reports whether the field may be 0 although its range begins above 0. 0 equals a
// missing field.
func (f fieldDef) zeroIsUnset() bool {
	isNumber := f.typ.kind == kindNumber || f.typ.kind == kindDegrees
	return isNumber && f.bounded() && f.def == "" && !f.required && !f.pointer && number(f.min) > 0
}

// rangeText returns the range, as in "0 or 8 to 29".
func (f fieldDef) rangeText() string {
	switch {
	case !f.zeroIsUnset():
		return f.min + " to " + f.max
	case f.min == "1":
		return "0 to " + f.max
	}
	return "0 or " + f.min + " to " + f.max
}

// structDef is one mapping of the file.
type structDef struct {
	doc    string
	fields []fieldDef
}

// parse reads the types from the sources in dir.
func parse(dir string) (map[string]structDef, error) {
	names, err := filepath.Glob(filepath.Join(dir, "types*.go"))
	if err != nil {
		return nil, fmt.Errorf("look for types in %s: %w", dir, err)
	}
	out := map[string]structDef{}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		for _, decl := range file.Decls {
			if err := parseDecl(out, decl); err != nil {
				return nil, fmt.Errorf("parse %s: %w", name, err)
			}
		}
	}
	return out, nil
}

func parseDecl(out map[string]structDef, decl ast.Decl) error {
	gen, ok := decl.(*ast.GenDecl)
	if !ok || gen.Tok != token.TYPE {
		return nil
	}
	spec := gen.Specs[0].(*ast.TypeSpec)
	body, ok := spec.Type.(*ast.StructType)
	if !ok || kindOf(spec.Name.Name) != kindStruct {
		return nil
	}
	def := structDef{doc: text(gen.Doc)}
	for _, f := range body.Fields.List {
		if f.Names[0].Name == "_" {
			continue
		}
		parsed, err := parseField(f)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", spec.Name.Name, f.Names[0].Name, err)
		}
		def.fields = append(def.fields, parsed)
	}
	out[spec.Name.Name] = def
	return nil
}

func parseField(f *ast.Field) (fieldDef, error) {
	if f.Tag == nil || f.Doc == nil {
		return fieldDef{}, fmt.Errorf("has no tag or no comment")
	}
	raw, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return fieldDef{}, fmt.Errorf("read tag: %w", err)
	}
	tag := reflect.StructTag(raw)
	name, _, _ := strings.Cut(tag.Get("json"), ",")
	out := fieldDef{
		name: name, doc: text(f.Doc), typ: typeOf(f.Type), def: tag.Get("default"),
		required: tag.Get("required") == "true", min: tag.Get("min"), max: tag.Get("max"),
	}
	_, out.pointer = f.Type.(*ast.StarExpr)
	if enum := tag.Get("enum"); enum != "" {
		out.enum = strings.Split(enum, "|")
	}
	return out, nil
}

func typeOf(e ast.Expr) valueType {
	switch t := e.(type) {
	case *ast.StarExpr:
		return typeOf(t.X)
	case *ast.ArrayType:
		elem := typeOf(t.Elt)
		return valueType{kind: kindList, elem: &elem}
	case *ast.MapType:
		elem := typeOf(t.Value)
		return valueType{kind: kindMap, elem: &elem}
	case *ast.SelectorExpr:
		return valueType{kind: kindOf(t.X.(*ast.Ident).Name + "." + t.Sel.Name)}
	case *ast.Ident:
		if kindOf(t.Name) == kindRules {
			return valueType{kind: kindRules, elem: &valueType{kind: kindStruct, name: "DynamicRule"}}
		}
		return valueType{kind: kindOf(t.Name), name: t.Name}
	}
	return valueType{}
}

// text joins the lines of a comment.
func text(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }
