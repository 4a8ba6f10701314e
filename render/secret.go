package render

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/fabric/trust"
)

// addSecrets writes each cluster's sealed keys. Without a root key it copies the published ones.
func addSecrets(tree Tree, in Input) diag.List {
	if in.Root == nil {
		return copySecrets(tree, in)
	}
	n, err := newDocumentSigner(in)
	if err != nil {
		return renderError("clusters", err)
	}
	sealed, err := in.Root.Seal(in.Topology, func(cluster string) []keys.SealedKeys {
		s := SealedOf(in.Previous, cluster)
		// An attacker can publish another ciphertext with the same digest, so verify the
		// proof.
		if n.revisionOf(cluster, s.Ciphertext, s.Proof) == 0 {
			return nil
		}
		return []keys.SealedKeys{s}
	})
	if err != nil {
		return renderError("clusters", err)
	}
	for i, c := range in.Topology.Spec.Clusters {
		if sealed[i].Proof != "" { // published, unchanged
			tree[secretPath(c.Name)] = keysSecret(sealed[i])
			continue
		}
		var published trust.Proof
		if json.Unmarshal([]byte(SealedOf(in.Previous, c.Name).Proof), &published) != nil {
			published = trust.Proof{}
		}
		signed, err := n.sign(trust.Keys, trust.Statement{Cluster: c.Name, SHA256: trust.Hash([]byte(sealed[i].Ciphertext))}, published.Signed)
		if err != nil {
			return renderError(ClusterDir(c.Name), err)
		}
		proof, err := json.Marshal(trust.Proof{Signed: signed})
		if err != nil {
			return renderError(ClusterDir(c.Name), err)
		}
		sealed[i].Proof = string(proof)
		tree[secretPath(c.Name)] = keysSecret(sealed[i])
	}
	return nil
}

// copySecrets copies the published Secrets. Only the root key can verify that they are current.
func copySecrets(tree Tree, in Input) diag.List {
	var list diag.List
	for _, c := range in.Topology.Spec.Clusters {
		published := SealedOf(in.Previous, c.Name)
		if in.Preview && published.Ciphertext == "" {
			published = keys.SealedKeys{Digest: KnownAfterPublish, Ciphertext: KnownAfterPublish}
		}
		if published.Ciphertext == "" {
			list = append(list, rootKeyNeeded(fmt.Sprintf("clusters[%s]", c.Name),
				"its sealed keys are not published yet, and cannot be made without the root key"))
			continue
		}
		tree[secretPath(c.Name)] = keysSecret(published)
	}
	return list
}

func secretPath(cluster string) string { return path.Join(ClusterDir(cluster), "keys.yaml") }

func keysSecret(s keys.SealedKeys) []byte {
	out := fmt.Appendf(nil, `apiVersion: v1
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
	if s.Proof != "" {
		out = fmt.Appendf(out, "  %s: %s\n", KeysProofKey, base64.StdEncoding.EncodeToString([]byte(s.Proof)))
	}
	return out
}

// SealedOf returns the published keys of a cluster. They are empty if absent or unreadable.
func SealedOf(tree Tree, cluster string) keys.SealedKeys {
	var s struct {
		Metadata struct {
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"metadata"`
		Data map[string]string `yaml:"data"`
	}
	raw := tree[secretPath(cluster)]
	if len(raw) == 0 || yaml.Unmarshal(raw, &s) != nil {
		return keys.SealedKeys{}
	}
	ciphertext, err := base64.StdEncoding.DecodeString(s.Data[KeysKey])
	if err != nil {
		return keys.SealedKeys{}
	}
	proof, err := base64.StdEncoding.DecodeString(s.Data[KeysProofKey])
	if err != nil {
		proof = nil
	}
	return keys.SealedKeys{Digest: s.Metadata.Annotations[DigestAnnotation], Ciphertext: string(ciphertext), Proof: string(proof)}
}
