package fabric

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// bomb returns a compressed document that repeats one element n times.
func bomb(tb testing.TB, before, each, after string, n int) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := fmt.Fprintf(w, "%s%s%s%s", before, strings.Repeat(each+",", n), each, after); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// TestBombs checks that Decode refuses a small document that expands to a large one, before it
// allocates much. The test is not parallel, because it counts allocations.
func TestBombs(t *testing.T) {
	const head = `{"apiVersion":"` + APIVersion + `",`
	for _, tt := range []struct {
		name, before, each, after string
		n                         int
	}{
		{"empty clusters", head + `"clusters":[`, "{}", "]}", 1 << 20},
		{"null for clusters", head + `"clusters":[`, "null", "]}", 1 << 20},
		{"numbers for exports", head + `"exports":[`, "7", "]}", 1 << 20},
		{"a name in other letters", head + `"EXPORTſ":[`, "{}", "]}", 1 << 20},
		{"an escaped name", head + `"\u0063lusters":[`, "{}", "]}", 1 << 20},
		{"gateways of a cluster", head + `"clusters":[{"gateways":[`, "{}", "]}]}", 2 << 20},
		{"many small maps", head + `"exports":[`, `{"balance":{"weights":{"a":1}}}`, "]}", 400 << 10},
		{"a large map", head + `"exports":[{"balance":{"weights":{"\u0061":1,`, `"":1`, "}}}]}", 3 << 20},
		{"links", head + `"links":[`, "{}", "]}", 2 << 20},
		{"edges", head + `"shape":{"edges":[`, "[]", "]}}", 5 << 20},
		{"addresses", head + `"clusters":[{"egressIPs":[`, `""`, "]}]}", 6 << 20},
		{"lists in lists", head + `"clusters":`, strings.Repeat("[", 9000), "", 0},
		{"spaces", head, strings.Repeat(" ", 1<<20), `"clusters":[]}`, MaxFabric >> 20},
		{"a long text", head + `"name":"`, strings.Repeat("a", 1<<20), `"}`, MaxFabric >> 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			packed := bomb(t, tt.before, tt.each, tt.after, tt.n)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := Decode(packed)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrTooLarge) {
				t.Errorf("%d bytes: %v", len(packed), err)
			}
			// io.ReadAll allocates a multiple of its result.
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 5*MaxFabric>>20 {
				t.Errorf("%d bytes took %d MiB", len(packed), took)
			}
		})
	}
}

// TestBoundsSuffice checks that Decode accepts a clusterset of 1000 clusters with 10000 exports.
// The clusterset uses at most an eighth of the limits.
func TestBoundsSuffice(t *testing.T) {
	t.Parallel()
	f := &Fabric{APIVersion: APIVersion}
	key := Key{Epoch: 1, Public: strings.Repeat("k", 44), Ed25519: strings.Repeat("e", 44)}
	for i := range 1000 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{242, byte(i >> 4), byte(i << 4), 0}), 20)
		c := Cluster{Name: fmt.Sprintf("cluster-%d", i), PodCIDRs: []netip.Prefix{block}, ServiceCIDRs: []netip.Prefix{block},
			GlobalCIDRs: []netip.Prefix{block}, EgressMode: EgressMapped, EgressIPs: make([]netip.Addr, 8),
			Mappings: []Mapping{{block, block}}, Dynamic: []netip.Prefix{block}}
		for j := range c.EgressIPs {
			c.EgressIPs[j] = block.Addr()
		}
		for ordinal := range 3 {
			c.Gateways = append(c.Gateways, Gateway{Name: fmt.Sprintf("gateway-%d", ordinal), Node: fmt.Sprintf("node-%d.example.org", ordinal), Ordinal: ordinal,
				Endpoints: []string{"203.0.113.7:51820", "dns:gateway.example.org"}, Addresses: []netip.Addr{block.Addr(), block.Addr()}, Keys: []Key{key, key}})
		}
		f.Clusters = append(f.Clusters, c)
	}
	for i := range 10000 {
		f.Exports = append(f.Exports, Export{Name: fmt.Sprintf("service-%d", i), Namespace: fmt.Sprintf("namespace-%d", i%100),
			Ports: []Port{{Name: "http", Protocol: "TCP", Port: 80}, {Name: "metrics", Protocol: "TCP", Port: 9090}}, Allow: []string{"cluster-1", "cluster-2"},
			Balance:  Balance{Policy: Weighted, Weights: map[string]int{"cluster-1": 1, "cluster-2": 2}},
			Clusters: []ExportCluster{{Name: "cluster-1", IPs: []netip.Addr{netip.MustParseAddr("242.1.0.4")}}, {Name: "cluster-2", IPs: []netip.Addr{netip.MustParseAddr("242.2.0.4")}}}})
	}
	raw, err := Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	used, err := countMemory(raw, reflect.TypeFor[Fabric](), maxFabricDecoded)
	if err != nil || used > maxFabricDecoded/8 || len(raw) > MaxFabric/8 {
		t.Errorf("%d bytes of JSON, %d decoded: %v", len(raw), used, err)
	}
	if _, _, err := Decode(raw); err != nil {
		t.Error(err)
	}

	// Each of half a million links differs from the defaults.
	for i := range f.Clusters {
		for j := range i {
			f.Links = append(f.Links, LinkSettings{Between: [2]string{f.Clusters[j].Name, f.Clusters[i].Name}, Driver: DriverWireguard, MTU: 1400, Keepalive: Duration(25e9)})
		}
	}
	if _, err := Encode(f); err != nil {
		t.Error(err)
	}

	keys := Keys{APIVersion: KeysAPIVersion}
	for epoch := range 10 {
		e := EpochKeys{Epoch: epoch, Gateways: map[string]Secret{}, Ed25519: map[string]Secret{}}
		for ordinal := range MaxGateways {
			e.Gateways[fmt.Sprintf("gateway-%d", ordinal)], e.Ed25519[fmt.Sprintf("gateway-%d", ordinal)] = Secret{}, Secret{}
		}
		keys.Epochs = append(keys.Epochs, e)
	}
	if raw, err = json.Marshal(keys); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeKeys(raw); err != nil || len(raw) > MaxKeys/4 {
		t.Errorf("%d bytes: %v", len(raw), err)
	}
}

// TestTooLarge checks that Encode refuses a document that agents would refuse. Keys have limits
// too.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	if _, err := Encode(&Fabric{APIVersion: APIVersion, Name: strings.Repeat("a", MaxFabric)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("encode: %v", err)
	}
	for name, raw := range map[string]string{
		"bytes":  `{"apiVersion":"` + KeysAPIVersion + `"` + strings.Repeat(" ", MaxKeys) + "}",
		"epochs": `{"apiVersion":"` + KeysAPIVersion + `","epochs":[` + strings.Repeat("{},", 200_000) + "{}]}",
	} {
		if _, err := DecodeKeys([]byte(raw)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode checks that Decode terminates for every document, and that weigh returns at least the
// memory of the decoded document.
func FuzzDecode(f *testing.F) {
	full, err := Encode(&Fabric{APIVersion: APIVersion, Name: "demo", Epochs: []int{1}, DynamicExports: &DynamicExports{Namespaces: []string{"a-*"}},
		Links: []LinkSettings{{Between: [2]string{"a", "b"}}}, Shape: Shape{Mode: ModeExplicit, Edges: [][2]string{{"a", "b"}}},
		Clusters: []Cluster{{Name: "a", EgressIPs: []netip.Addr{netip.MustParseAddr("fd00::1")}, EgressRules: []EgressRule{{MatchLabels: map[string]string{"a": "b"}}},
			Gateways: []Gateway{{Name: "g", Keys: []Key{{Epoch: 1}}}}}},
		Exports: []Export{{Name: "e", Balance: Balance{Weights: map[string]int{"a": 1}}, Clusters: []ExportCluster{{Hosts: []Host{{Name: "*-0"}}}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"apiVersion":"` + APIVersion + `","Clusters":[{},null,{"\u0067ateways":[{},{}]}],"clusterſ":[{}],"x":[{"clusters":[]}]}`))
	f.Add([]byte(`{"apiVersion":"` + APIVersion + `","decommission":true,"name":"` + strings.Repeat("\xff", 50) + `"}`))
	f.Add(bomb(f, `{"clusters":[`, "{}", "]}", 10))
	f.Fuzz(func(t *testing.T, raw []byte) {
		document, _, err := Decode(raw)
		if err != nil {
			return
		}
		plain, err := Decompress(raw)
		if err != nil {
			t.Fatal(err)
		}
		used, err := countMemory(plain, reflect.TypeFor[Fabric](), maxFabricDecoded)
		if have := size(reflect.ValueOf(document).Elem()); err != nil || used < have {
			t.Errorf("counted %d of %d: %v", used, have, err)
		}
		document.Graph().ForwardsTransit("a")
	})
}

// FuzzDecodeKeys checks the same for keys. Errors never quote a key.
func FuzzDecodeKeys(f *testing.F) {
	full, err := json.Marshal(Keys{APIVersion: KeysAPIVersion, Cluster: "a", Epochs: []EpochKeys{{Epoch: 1, Gateways: map[string]Secret{"g": {1}}, Ed25519: map[string]Secret{"g": {2}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"apiVersion":"` + KeysAPIVersion + `","epochs":[{"pskSeed":"c2VjcmV0c2VjcmV0c2VjcmV0"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		keys, err := DecodeKeys(raw)
		if err != nil {
			if strings.Contains(err.Error(), "c2VjcmV0") && !strings.Contains(err.Error(), "apiVersion") {
				t.Errorf("quoted: %v", err)
			}
			return
		}
		used, err := countMemory(raw, reflect.TypeFor[Keys](), maxKeysDecoded)
		if have := size(reflect.ValueOf(keys).Elem()); err != nil || used < have {
			t.Errorf("counted %d of %d: %v", used, have, err)
		}
		if _, err := keys.Epoch(1).psk(); err != nil {
			t.Error(err)
		}
	})
}

func (e *EpochKeys) psk() (Secret, error) {
	if e == nil {
		return Secret{}, nil
	}
	return e.PSK("a/g", "b/g")
}

// size returns the memory of a value in bytes, without spare capacity.
func size(v reflect.Value) int {
	total := 0
	switch v.Kind() {
	case reflect.String:
		total = v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			total = int(v.Type().Elem().Size()) + size(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if v.Kind() == reflect.Slice {
				total += int(v.Type().Elem().Size())
			}
			total += size(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			total += int(v.Type().Key().Size()+v.Type().Elem().Size()) + size(k) + size(v.MapIndex(k))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() { // unexported fields of netip are shared
				total += size(v.Field(i))
			}
		}
	}
	return total
}
