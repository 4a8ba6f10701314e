package apply

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func objectOf(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var o unstructured.Unstructured
	if err := o.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return &o
}

const daemons = `apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: a
  namespace: n
  uid: x
  generation: 4
  annotations: {deprecated.daemonset.template.generation: "4"}
  managedFields:
  - {manager: kubectl-edit, operation: Update, apiVersion: apps/v1, fieldsType: FieldsV1,
     fieldsV1: {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"agent"}': {"f:image": {}}}}}}}}
  - {manager: ctl, operation: Update, apiVersion: apps/v1, subresource: status, fieldsType: FieldsV1, fieldsV1: {"f:status": {}}}
  - {manager: hawser-apply, operation: Apply, apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}
spec:
  template: {spec: {containers: [{name: other, image: o}, {name: agent, image: %s}]}}
status: {numberReady: 1}
`

func TestCompare(t *testing.T) {
	t.Parallel()
	secret := `apiVersion: v1
kind: Secret
metadata: {name: k, namespace: n, annotations: {kubectl.kubernetes.io/last-applied-configuration: "%[1]s", plain: "%[1]s"}}
data: {keys.age: %[1]s}
stringData: {more: %[1]s}
`
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: n}\ndata: {a.b/c: %s}\n"
	long := strings.Repeat("x", 200)
	tests := []struct {
		name       string
		text       string
		have, want string
		fields     []Field
	}{
		{"the same", daemons, "i", "i", nil},
		{"an image that another set", daemons, "i", "j",
			[]Field{{Path: "spec.template.spec.containers[1].image", Have: "i", Want: "j", Managers: []string{"kubectl-edit"}}}},
		{"a Secret", secret, "hidden", "masked", []Field{
			{Path: `data["keys.age"]`, Have: "(sensitive)", Want: "(sensitive)"},
			{Path: "metadata.annotations.plain", Have: "hidden", Want: "masked"},
			{Path: `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`, Have: "(sensitive)", Want: "(sensitive)"},
			{Path: "stringData.more", Have: "(sensitive)", Want: "(sensitive)"},
		}},
		{"a long value", config, "short", long,
			[]Field{{Path: `data["a.b/c"]`, Have: "short", Want: "(200 bytes, sha256 aa20c23e32018340)"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			side := func(value string) *unstructured.Unstructured {
				if strings.Contains(tt.text, "%[1]s") {
					return objectOf(t, strings.ReplaceAll(tt.text, "%[1]s", value))
				}
				return objectOf(t, strings.Replace(tt.text, "%s", value, 1))
			}
			out, err := compare(side(tt.want), side(tt.want), side(tt.have))
			if err != nil {
				t.Fatal(err)
			}
			var fields []Field
			if out.change != nil {
				fields = out.change.Fields
			}
			if diff := cmp.Diff(tt.fields, fields); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
