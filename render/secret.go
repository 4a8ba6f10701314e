package render

import (
	"encoding/base64"
	"fmt"
	"path"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render/keys"
)

// addSecrets writes each cluster's sealed keys. Without a root key they are
// those that are published.
func addSecrets(tree Tree, in Input) diag.List {
	if in.Root == nil {
		return keepSecrets(tree, in)
	}
	sealed, err := in.Root.Seal(in.Topology, func(cluster string) keys.Sealed { return SealedOf(in.Previous, cluster) })
	if err != nil {
		return failed("clusters", err)
	}
	for i, c := range in.Topology.Spec.Clusters {
		tree[secretPath(c.Name)] = secret(sealed[i])
	}
	return nil
}

// keepSecrets copies what is published. Whether it is current cannot be told
// without the root key.
func keepSecrets(tree Tree, in Input) diag.List {
	var list diag.List
	for _, c := range in.Topology.Spec.Clusters {
		before := SealedOf(in.Previous, c.Name)
		if in.Preview && before.Ciphertext == "" {
			before = keys.Sealed{Digest: KnownLater, Ciphertext: KnownLater}
		}
		if before.Ciphertext == "" {
			list = append(list, noRoot(fmt.Sprintf("clusters[%s]", c.Name),
				"its sealed keys are not published yet, and cannot be made without the root key"))
			continue
		}
		tree[secretPath(c.Name)] = secret(before)
	}
	return list
}

func secretPath(cluster string) string { return path.Join(ClusterDir(cluster), "keys.yaml") }

func secret(s keys.Sealed) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Secret
metadata:
  name: %s
  namespace: %s
  labels: {%s}
  annotations:
    %s: %s
type: Opaque
data:
  %s: %s
`, KeysSecret, Namespace, partOf, DigestAnnotation, scalar(s.Digest), KeysKey, base64.StdEncoding.EncodeToString([]byte(s.Ciphertext)))
}

// SealedOf reads a cluster's keys as they are published; empty when there
// are none, or what is there cannot be read.
func SealedOf(tree Tree, cluster string) keys.Sealed {
	var s struct {
		Metadata struct {
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"metadata"`
		Data map[string]string `yaml:"data"`
	}
	raw := tree[secretPath(cluster)]
	if len(raw) == 0 || yaml.Unmarshal(raw, &s) != nil {
		return keys.Sealed{}
	}
	ciphertext, err := base64.StdEncoding.DecodeString(s.Data[KeysKey])
	if err != nil {
		return keys.Sealed{}
	}
	return keys.Sealed{Digest: s.Metadata.Annotations[DigestAnnotation], Ciphertext: string(ciphertext)}
}
