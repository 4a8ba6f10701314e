package render

import (
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

//go:embed base
var baseFiles embed.FS

// Names of the objects, and of their keys, that the agents read.
const (
	FabricConfigMap   = "hawser-fabric" // hawser-fabric-1, ... follow if it is split
	FabricKey         = "fabric.json.gz"
	FabricProofKey    = "fabric.sig" // in the first ConfigMap
	KeysSecret        = "hawser-keys"
	KeysKey           = "keys.age"
	KeysProofKey      = "keys.sig"
	TrustSecret       = "hawser-trust" // created once in each cluster, never rendered
	TrustKey          = "signers"
	IdentityConfigMap = "hawser-identity"
	AgentName         = "hawser-agent"   // DaemonSet and ServiceAccount without gateways
	GatewayName       = "hawser-gateway" // DaemonSet and ServiceAccount on gateways
	// AgentFile and GatewayFile are the files of the two DaemonSets in the tree.
	AgentFile   = "base/agent.yaml"
	GatewayFile = "base/gateway.yaml"
	// DigestAnnotation is the annotation of KeysSecret with the keyed digest of the sealed
	// keys.
	DigestAnnotation = "hawser.dev/keys-digest"
)

// partOf is a label of all rendered objects.
const partOf = fabric.PartOfLabel + ": " + fabric.ManagedByValue

// maxPartSize is the maximum size of the gzip data in one ConfigMap, in bytes. The API server
// accepts 1 MiB of decoded data per object.
const maxPartSize = 900 << 10

// addFabric writes the directory base, the web page, and the fabric as readable text.
func addFabric(tree Tree, f *fabric.Fabric, in Input) diag.List {
	raw, err := fabric.Encode(f)
	if err != nil {
		return renderError("base", err)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, raw, "", " "); err != nil {
		return renderError("", fmt.Errorf("write %s: %w", FabricText, err))
	}
	tree[FabricText] = text.Bytes()
	packed := publishedPacked(in.Previous, raw)
	if packed == nil {
		if packed, err = fabric.Compress(raw); err != nil {
			return renderError("base", err)
		}
	}
	proof, list := signFabric(in, packed)
	if list.HasErrors() {
		return list
	}
	parts := slices.Collect(slices.Chunk(packed, maxPartSize))
	maps := make([]string, len(parts))
	for i, part := range parts {
		maps[i] = partName(FabricConfigMap, i)
		key := FabricKey
		if len(parts) > 1 {
			key += "." + strconv.Itoa(i)
		}
		object := configMap(maps[i], "binaryData", key, base64.StdEncoding.EncodeToString(part))
		if i == 0 && len(proof) > 0 {
			object = fmt.Appendf(object, "data:\n  %s: %s\n", FabricProofKey, scalar(string(proof)))
		}
		tree["base/"+partName("fabric", i)+".yaml"] = object
	}
	image, found := agentImage(in)
	if list = append(list, found...); found.HasErrors() {
		return list
	}
	if list = append(list, addUI(tree, in.Topology, image, maps)...); list.HasErrors() {
		return list
	}
	egress := slices.ContainsFunc(f.Clusters, func(c fabric.Cluster) bool { return len(c.EgressRules) > 0 })
	if err := addStatic(tree, baseValues{Image: scalar(image), Agent: in.Topology.Spec.Agent, ConfigMaps: maps,
		MetricsPort: in.Topology.Spec.Metrics.Port, Dynamic: f.DynamicExports != nil, Egress: egress}); err != nil {
		return renderError("base", err)
	}
	return list
}

func anyOf[T any](list []T) string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = regexp.QuoteMeta(fmt.Sprint(item))
	}
	return strings.Join(texts, "|")
}

// baseValues contains the values for the templates of the directory base.
type baseValues struct {
	Image      string
	Agent      schema.Agent
	ConfigMaps []string // ConfigMaps with the fabric
	// MetricsPort is the port of the agents' metrics on their nodes' addresses; 0 = none.
	MetricsPort int
	Dynamic     bool // clusters can have dynamic exports
	Egress      bool // a cluster has egress rules
}

// Roles returns the two roles of agents, for the template of their RBAC rules.
func (b baseValues) Roles() []roleValues {
	return []roleValues{
		{baseValues: b, Name: AgentName},
		{baseValues: b, Name: GatewayName, Gateway: true},
	}
}

// roleValues contains the values for the template of a DaemonSet.
type roleValues struct {
	baseValues
	Name    string
	Gateway bool
}

// Limits returns the resource limits of the role.
func (r roleValues) Limits() schema.AgentLimits {
	if r.Gateway {
		return schema.AgentLimits(r.Agent.GatewayLimits)
	}
	return r.Agent.Limits
}

func renderError(path string, err error) diag.List {
	return diag.List{{Severity: diag.Error, Code: "render", Path: path, Summary: err.Error()}}
}

func partName(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(i)
}

// addStatic writes the embedded files. It executes the template of the DaemonSet for each role.
func addStatic(tree Tree, values baseValues) error {
	entries, err := baseFiles.ReadDir("base")
	if err != nil {
		return fmt.Errorf("read embedded files: %w", err)
	}
	for _, e := range entries {
		raw, err := baseFiles.ReadFile("base/" + e.Name())
		if err != nil {
			return fmt.Errorf("read embedded %s: %w", e.Name(), err)
		}
		switch e.Name() {
		case "README.md":
			tree["README.md"] = raw
		case "rbac.yaml", "policy.yaml":
			err = addTemplate(tree, e.Name(), raw, values)
		case "daemonset.yaml":
			roles := values.Roles()
			err = errors.Join(addTemplate(tree, path.Base(AgentFile), raw, roles[0]), addTemplate(tree, path.Base(GatewayFile), raw, roles[1]))
		default:
			tree["base/"+e.Name()] = raw
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func addTemplate(tree Tree, name string, raw []byte, values any) error {
	out, err := executeTemplate(name, string(raw), values)
	tree["base/"+name] = out
	return err
}

func executeTemplate(name, text string, values any) ([]byte, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"scalar": scalar, "quantity": quantity}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read embedded template of %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, values); err != nil {
		return nil, fmt.Errorf("fill in %s: %w", name, err)
	}
	return out.Bytes(), nil
}

func configMap(name, field, key, value string) []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\n  labels: {%s}\n%s:\n  %s: %s\n",
		name, Namespace, partOf, field, key, scalar(value))
}

// scalar returns text as a YAML scalar that every parser reads as text.
func scalar(text string) string {
	// A YAML 1.1 parser can read an unquoted text as a number, a boolean or null: 0123, 1e3,
	// no, ~.
	words := []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"}
	if text == "" || strings.ContainsAny(text, ":#{}[],&*!|>'\"%@`\\ \t\n") || slices.Contains(words, strings.ToLower(text)) ||
		strings.ContainsRune("0123456789+-.=?<", rune(text[0])) {
		return strconv.Quote(text)
	}
	return text
}

// SharedCRDs returns the CRDs of the Multi-Cluster Services API. Another controller of a cluster
// can own them.
func SharedCRDs() []string {
	return []string{"serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"}
}

// crdPatchesDir is the directory of a cluster with the patches that exclude CRDs of other
// controllers.
const crdPatchesDir = "definitions"

// addClusters writes the files of each cluster except its keys, and the objects of Flux and Argo
// CD.
func addClusters(tree Tree, top *schema.ClusterSet, f *fabric.Fabric) diag.List {
	exports, ports := exportsByCluster(top), firewall.New(f)
	for _, c := range top.Spec.Clusters {
		tree[path.Join(ClusterDir(c.Name), "identity.yaml")] = configMap(IdentityConfigMap, "data", "cluster", c.Name)
		addPlacement(tree, &c)
		addLeases(tree, &c)
		addGatewayServices(tree, f.Cluster(c.Name), ports)
		if err := addPolicy(tree, &c, f, ports); err != nil {
			return renderError("clusters["+c.Name+"]", err)
		}
		for _, name := range SharedCRDs() {
			if file, _, _ := strings.Cut(name, "."); c.CRDs == schema.KeepCRDs {
				tree[path.Join(ClusterDir(c.Name), crdPatchesDir, file+".yaml")] = fmt.Appendf(nil,
					"$patch: delete\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: %s}\n", name)
			}
		}
		addExports(tree, c.Name, exports[c.Name])
	}
	addDelivery(tree, top, exports)
	return nil
}
