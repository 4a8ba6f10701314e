package facts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/diag"
)

// Objects are the Kubernetes objects from which facts are computed.
type Objects struct {
	Nodes          []corev1.Node
	Pods           []corev1.Pod
	Services       []corev1.Service
	EndpointSlices []discoveryv1.EndpointSlice
	Namespaces     []corev1.Namespace
	Exports        []mcsv1.ServiceExport
	Imports        []mcsv1.ServiceImport
	// HawserNodes are the reports of all nodes. If it is nil, no node reports, and all nodes
	// count as protected.
	HawserNodes []HawserNode
}

// HawserNode has only the fields of a HawserNode that facts need.
type HawserNode struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		RulesBootID string `json:"rulesBootID"`
		FabricProof string `json:"fabricProof"`
		KeysProof   string `json:"keysProof"`
	} `json:"status"`
}

// API version and kind of HawserNodes.
const (
	hawserVersion  = "hawser.dev/v1alpha1"
	hawserNodeKind = "HawserNode"
)

func (o *Objects) add(more Objects) {
	o.Nodes = append(o.Nodes, more.Nodes...)
	o.Pods = append(o.Pods, more.Pods...)
	o.Services = append(o.Services, more.Services...)
	o.EndpointSlices = append(o.EndpointSlices, more.EndpointSlices...)
	o.Namespaces = append(o.Namespaces, more.Namespaces...)
	o.Exports = append(o.Exports, more.Exports...)
	o.Imports = append(o.Imports, more.Imports...)
	o.HawserNodes = append(o.HawserNodes, more.HawserNodes...)
}

// Decode decodes the objects of one file: YAML or JSON, several documents, v1 Lists. It skips
// objects of other kinds. The error is a diag.Diagnostic with a position in file. If any part of
// the file is invalid, Decode returns no objects.
func Decode(file string, raw []byte) (Objects, error) {
	var out Objects
	documents := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return Objects{}, broken(file, 1, err)
		}
		if len(document.Content) == 0 || isNull(document.Content[0]) {
			continue
		}
		if err := out.decode(file, document.Content[0], 0); err != nil {
			return Objects{}, err
		}
	}
}

// head has the fields that determine the kind. Items remains a YAML node, so that an error in a
// list has a line number.
type head struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Items      yaml.Node
}

// maxNesting is the maximum depth of lists inside lists.
const maxNesting = 4

func (o *Objects) decode(file string, node *yaml.Node, nesting int) error {
	if node.Kind != yaml.MappingNode {
		return broken(file, node.Line, errors.New("a Kubernetes object is a mapping"))
	}
	var h head
	if err := node.Decode(&h); err != nil {
		return broken(file, node.Line, err)
	}
	switch h.APIVersion + " " + h.Kind {
	case "v1 List", "v1 NodeList", "v1 PodList", "v1 ServiceList", "v1 NamespaceList", "discovery.k8s.io/v1 EndpointSliceList",
		mcsv1.GroupName + "/v1beta1 ServiceExportList", mcsv1.GroupName + "/v1beta1 ServiceImportList",
		mcsv1.GroupName + "/v1alpha1 ServiceExportList", mcsv1.GroupName + "/v1alpha1 ServiceImportList",
		hawserVersion + " " + hawserNodeKind + "List":
		if nesting == maxNesting {
			return broken(file, h.Items.Line, fmt.Errorf("lists are nested more than %d deep", maxNesting))
		}
		if h.Items.IsZero() || isNull(&h.Items) {
			return nil
		}
		if h.Items.Kind != yaml.SequenceNode {
			return broken(file, h.Items.Line, errors.New("items is not a list"))
		}
		for _, item := range h.Items.Content {
			if err := o.decode(file, item, nesting+1); err != nil {
				return err
			}
		}
		return nil
	case "v1 Node":
		return appendObject(file, node, &o.Nodes)
	case "v1 Pod":
		return appendObject(file, node, &o.Pods)
	case "v1 Service":
		return appendObject(file, node, &o.Services)
	case "discovery.k8s.io/v1 EndpointSlice":
		return appendObject(file, node, &o.EndpointSlices)
	case "v1 Namespace":
		return appendObject(file, node, &o.Namespaces)
	case mcsv1.GroupName + "/v1beta1 ServiceExport", mcsv1.GroupName + "/v1alpha1 ServiceExport":
		return appendObject(file, node, &o.Exports)
	case mcsv1.GroupName + "/v1beta1 ServiceImport", mcsv1.GroupName + "/v1alpha1 ServiceImport":
		return appendObject(file, node, &o.Imports)
	case hawserVersion + " " + hawserNodeKind:
		return appendObject(file, node, &o.HawserNodes)
	}
	if h.APIVersion == "" || h.Kind == "" {
		return broken(file, node.Line, errors.New("a Kubernetes object has apiVersion and kind"))
	}
	return nil
}

// appendObject decodes a node as the API server does: field names are case-sensitive, and unknown
// fields are ignored.
func appendObject[T any](file string, node *yaml.Node, list *[]T) error {
	untypeDates(node)
	var tree any
	if err := node.Decode(&tree); err != nil {
		return broken(file, node.Line, err)
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return broken(file, node.Line, err)
	}
	var object T
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return broken(file, lineOf(node, err), err)
	}
	*list = append(*list, object)
	return nil
}

// untypeDates turns unquoted dates into text, as the API server does.
func untypeDates(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!timestamp" {
		node.Tag = "!!str"
	}
	for _, child := range node.Content {
		untypeDates(child)
	}
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// lineOf returns the line of the field in a JSON error. The path of such an error has no list
// indexes, so lineOf uses the first list element that has the field.
func lineOf(node *yaml.Node, err error) int {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) || mismatch.Field == "" {
		return node.Line
	}
	for name := range strings.SplitSeq(mismatch.Field, ".") {
		next := child(node, name)
		if next == nil {
			break
		}
		node = next
	}
	return node.Line
}

func child(node *yaml.Node, name string) *yaml.Node {
	if node.Kind == yaml.SequenceNode {
		for _, item := range node.Content {
			if found := child(item, name); found != nil {
				return found
			}
		}
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

// linePattern matches the position in an error of yaml.v3.
const linePattern = `^line (\d+): `

func broken(file string, line int, err error) error {
	summary := strings.TrimPrefix(err.Error(), "yaml: ")
	var several *yaml.TypeError
	if errors.As(err, &several) && len(several.Errors) > 0 {
		summary = several.Errors[0]
	}
	if found := regexp.MustCompile(linePattern).FindStringSubmatch(summary); found != nil {
		line, _ = strconv.Atoi(found[1])
		summary = summary[len(found[0]):]
	}
	return diag.Diagnostic{
		Severity: diag.Error,
		Code:     "facts-decode",
		Pos:      diag.Pos{File: file, Line: max(line, 1), Column: 1},
		Summary:  summary,
		Hint:     "the last good content of this file stays in use; fix the file",
	}
}
