package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/yamlsize"
)

// Parse reads the manifests of one file: YAML or JSON, any number of documents. It returns a
// warning for each field that has no effect in the lab. file is the source in findings. The error
// joins all findings with severity Error.
func Parse(file string, raw []byte) (objects []Object, warnings diag.List, err error) {
	if at, found := yamlsize.Excess(file, raw); found {
		return nil, nil, finding(file, at.Line, "manifest-syntax", yamlsize.Summary())
	}
	var findings diag.List
	documents := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects, warnings, findings.Err()
		}
		if err != nil {
			return nil, nil, append(findings, syntax(file, err)).Err()
		}
		if len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null" {
			continue
		}
		object, err := decode(file, document.Content[0])
		if err != nil {
			var found diag.Diagnostic
			errors.As(err, &found)
			findings = append(findings, found)
			continue
		}
		objects = append(objects, object)
		warnings = append(warnings, unusedFields(file, document.Content[0], object.Key)...)
	}
}

// ReadDir reads every *.yaml, *.yml and *.json file of a directory in the order of their names. Its
// results are as with Parse.
func ReadDir(dir string) (objects []Object, warnings diag.List, err error) {
	entries, err := checkout.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read manifests: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		raw, err := checkout.ReadFile(path)
		if err != nil {
			return nil, nil, fmt.Errorf("read manifests: %w", err)
		}
		parsed, unused, err := Parse(path, raw)
		objects, warnings, errs = append(objects, parsed...), append(warnings, unused...), append(errs, err)
	}
	return objects, warnings, errors.Join(errs...)
}

// Write returns objects as YAML for Parse.
func Write(objects []Object) ([]byte, error) {
	var out bytes.Buffer
	for i := range objects {
		raw, err := kyaml.Marshal(objects[i].content())
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", objects[i].Key, err)
		}
		out.WriteString("---\n")
		out.Write(raw)
	}
	return out.Bytes(), nil
}

func decode(file string, node *yaml.Node) (Object, error) {
	var typeMeta struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
	}
	if err := node.Decode(&typeMeta); err != nil {
		return Object{}, finding(file, node.Line, "manifest-syntax", "a manifest is a mapping with apiVersion and kind")
	}
	at := slices.IndexFunc(kinds(), func(k kind) bool { return k.name == typeMeta.Kind && k.apiVersion == typeMeta.APIVersion })
	if at < 0 {
		return Object{}, unknownKindError(file, node, typeMeta.APIVersion, typeMeta.Kind)
	}
	object := Object{Key: Key{Kind: typeMeta.Kind}}
	if err := decodeInto(file, node, object.body()); err != nil {
		return Object{}, err
	}
	meta := object.meta()
	if meta.Name == "" {
		return Object{}, finding(file, node.Line, "manifest-name", typeMeta.Kind+" has no metadata.name")
	}
	if kinds()[at].cluster {
		meta.Namespace = ""
	} else if meta.Namespace == "" {
		meta.Namespace = "default"
	}
	object.Key.Namespace, object.Key.Name = meta.Namespace, meta.Name
	if problem := object.check(); problem != "" {
		return Object{}, finding(file, node.Line, "manifest-invalid", typeMeta.Kind+" "+meta.Name+": "+problem)
	}
	return object, nil
}

func unknownKindError(file string, node *yaml.Node, apiVersion, name string) error {
	line := node.Line
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == "kind" {
			line = node.Content[i].Line
		}
	}
	var known []string
	for _, k := range kinds() {
		known = append(known, k.apiVersion+" "+k.name)
	}
	d := finding(file, line, "manifest-kind", fmt.Sprintf("kind %q of apiVersion %q does not run in the lab", name, apiVersion))
	d.Hint = "the lab runs " + strings.Join(known, ", ")
	return d
}

// decodeInto decodes like a strict API server: unknown and duplicate fields are errors.
func decodeInto(file string, node *yaml.Node, into any) error {
	var tree any
	if err := node.Decode(&tree); err != nil {
		return syntax(file, err)
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return finding(file, node.Line, "manifest-syntax", err.Error())
	}
	strictErrs, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return finding(file, node.Line, "manifest-field", err.Error())
	}
	if len(strictErrs) > 0 {
		return finding(file, node.Line, "manifest-field", errors.Join(strictErrs...).Error())
	}
	return nil
}

// check returns a problem that the API server would reject, or that the lab does not support.
func (o *Object) check() string {
	switch {
	case o.Deployment != nil:
		return matches(o.Deployment.Spec.Selector, o.Deployment.Spec.Template.Labels)
	case o.StatefulSet != nil:
		return matches(o.StatefulSet.Spec.Selector, o.StatefulSet.Spec.Template.Labels)
	case o.Service != nil && o.Service.Spec.Type == corev1.ServiceTypeExternalName:
		if o.Service.Spec.ExternalName == "" {
			return "spec.externalName is required with type ExternalName"
		}
	case o.Service != nil && len(o.Service.Spec.Ports) == 0 && o.Service.Spec.ClusterIP != corev1.ClusterIPNone:
		return "spec.ports is required unless clusterIP is None or type is ExternalName"
	}
	return ""
}

func matches(selector *metav1.LabelSelector, template map[string]string) string {
	if selector == nil {
		return "spec.selector is required"
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	switch {
	case err != nil:
		return "spec.selector: " + err.Error()
	case parsed.Empty() || !parsed.Matches(labels.Set(template)):
		return "spec.selector must match the labels of spec.template"
	}
	return ""
}

func syntax(file string, err error) diag.Diagnostic {
	line := 1
	if found := regexp.MustCompile(`line (\d+)`).FindStringSubmatch(err.Error()); found != nil {
		line, _ = strconv.Atoi(found[1])
	}
	return finding(file, line, "manifest-syntax", strings.TrimPrefix(err.Error(), "yaml: "))
}

func finding(file string, line int, code, summary string) diag.Diagnostic {
	return diag.Diagnostic{Severity: diag.Error, Code: code, Pos: diag.Pos{File: file, Line: line, Column: 1}, Summary: summary}
}
