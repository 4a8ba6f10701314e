package importcheck

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "hawser.dev/hawser"

type goPackage struct {
	ImportPath, Name, Dir              string
	GoFiles                            []string
	Deps                               []string
	Imports, TestImports, XTestImports []string
}

// rule forbids packages under from to import packages under never. It does not apply to packages
// under exclude, or to imports in except. deep covers all dependencies instead of direct imports.
type rule struct {
	from    string
	exclude string
	never   []string
	except  []string // packages under never that are allowed
	deep    bool
	why     string
}

func rules() []rule {
	pkgs := func(names ...string) []string {
		for i, n := range names {
			names[i] = module + "/" + n
		}
		return names
	}
	commands := pkgs("internal/cli/edit", "internal/cli/offline", "internal/cli/publish", "internal/cli/install", "internal/cli/observe",
		"internal/cli/keys", "internal/cli/ui", "internal/cli/lab", "internal/cli/root")
	return []rule{
		{from: module + "/schema", exclude: module + "/schema/load", never: pkgs("schema/load"),
			why: "a topology is read first: nothing that works on it reads one"},
		{from: module + "/schema/lockfile", never: pkgs("schema/allocate", "schema/lockmerge", "schema/validate", "schema/load"), deep: true,
			why: "arrows: lockfile <- allocate, overlay: the lock's content is separate from the decisions about it"},
		{from: module + "/schema/fabric", never: pkgs("schema", "render", "reconciler", "nodeagent", "lab"), deep: true,
			why: "the wire contract stands alone"},
		{from: module + "/schema", never: pkgs("render", "reconciler", "nodeagent", "lab"), deep: true,
			why: "arrows: schema <- render <- reconciler <- internal/cli"},
		{from: module + "/render", never: pkgs("reconciler", "nodeagent", "lab"), except: pkgs("nodeagent/status", "nodeagent/mcs"), deep: true,
			why: "arrows: schema <- access <- render <- reconciler <- internal/cli; access reads reports of agents"},
		{from: module + "/access", never: pkgs("render", "reconciler", "nodeagent", "lab", "view"), except: pkgs("nodeagent/status", "nodeagent/mcs"), deep: true,
			why: "who can reach what follows from the fabric and the reports of agents alone"},
		{from: module + "/health", never: append(pkgs("render", "reconciler", "kubeclient", "lab", "view"), "os", "net", "log/slog", "k8s.io"), deep: false,
			why: "problems follow from reports of APIs and agents alone"},
		{from: module + "/schema/fabric/reach", never: pkgs("access", "nodeagent"), deep: true,
			why: "the reference model is independent of what it is compared with"},
		{from: module + "/reconciler", never: append(pkgs("nodeagent/kernel", "nodeagent/converge", "nodeagent/cluster/facts",
			"nodeagent/peer/health", "nodeagent/dns", "nodeagent/peer/feed", "lab", "kubeclient", "install"), "k8s.io/client-go"), deep: true,
			why: "the reconciler goes from git to git: it uses the pure parts of the agent for the plan, and talks to no cluster"},
		{from: module + "/kubeclient", exclude: module + "/kubeclient/fakeapi", never: pkgs("reconciler", "install", "lab", "nodeagent/kernel", "nodeagent/converge"), deep: true,
			why: "the client knows objects and agents, not git and not what to apply"},
		{from: module + "/install", never: pkgs("lab", "nodeagent/kernel", "nodeagent/converge", "nodeagent/cluster/facts",
			"nodeagent/peer/health", "nodeagent/dns", "nodeagent/peer/feed"), deep: true,
			why: "of the agent an installation may use the pure parts: mcs, and corefile to remove Hawser's DNS blocks"},
		{from: module + "/install/apply", never: pkgs("reconciler"), deep: true,
			why: "hawser apply takes a tree from any source"},
		{from: module + "/render", never: []string{"k8s.io/client-go"}, deep: true,
			why: "rendering asks no cluster"},
		{from: module + "/discover", never: []string{"os", "net", "math/rand", "math/rand/v2", "log/slog", "os/exec", "k8s.io/client-go"},
			why: "what the objects of a cluster mean is decided purely; kubeclient reads them"},
		{from: module + "/nodeagent", never: append(pkgs("reconciler", "render", "lab", "schema"),
			"github.com/go-git/go-git", "sigs.k8s.io/kustomize"), deep: true,
			why: "the agent stays small: no git, no kustomize, no rendering"},
		{from: module + "/nodeagent/converge", never: []string{"github.com/vishvananda/netlink", "github.com/google/nftables",
			"golang.zx2c4.com/wireguard"}, deep: true,
			why: "the engine knows nothing about networks"},
		{from: module + "/nodeagent/cluster/facts", never: []string{"k8s.io/client-go"}, deep: true,
			why: "what objects mean is decided without an API server"},
		{from: module + "/internal/sortedmap", never: append(pkgs("nodeagent", "schema"), "k8s.io"),
			why: "a store is independent of its values"},
		{from: module + "/nodeagent", never: []string{"k8s.io/client-go/kubernetes", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/mcs-api/pkg/client"}, deep: true,
			why: "the agent stays small: no clientsets, no controllers"},
		{from: module + "/nodeagent/cluster/kube", never: pkgs("nodeagent/kernel", "nodeagent/converge", "nodeagent/peer/health", "nodeagent/peer/feed"), deep: true,
			why: "the Kubernetes API is an input; the node does not depend on it"},
		{from: module + "/nodeagent/projection", never: []string{"os", "math/rand", "math/rand/v2", "log/slog", "os/exec"},
			why: "project is pure: no environment, no randomness, no I/O"},
		{from: module + "/nodeagent/round", exclude: module + "/nodeagent/round/roundtest", never: append(pkgs("nodeagent/kernel", "nodeagent/cluster/kube", "nodeagent/dns", "nodeagent/cluster/apiobjects"),
			"os", "net", "math/rand", "math/rand/v2", "log/slog", "os/exec"),
			why: "a round is a pure function: nodeagent observes before it, and executes its effects"},
		{from: module + "/nodeagent/peer/endpoint", never: append(pkgs("nodeagent/projection", "nodeagent/peer/feed", "nodeagent/kernel"), "os", "net", "math/rand", "math/rand/v2",
			"log/slog", "os/exec", "k8s.io"),
			why: "at which endpoint a gateway is reached is decided purely; package peer sends the probes"},
		{from: module + "/nodeagent/mcs", never: append(pkgs("nodeagent/projection", "nodeagent/desired", "nodeagent/kernel", "nodeagent/cluster/facts"), "k8s.io",
			"os", "net", "math/rand", "math/rand/v2", "log/slog", "os/exec"),
			why: "what the Multi-Cluster Services API says is decided purely; project asks, objects are written elsewhere"},
		{from: module + "/nodeagent/driver", exclude: module + "/nodeagent/driver/drivertest", never: append(pkgs("nodeagent/projection", "nodeagent/kernel"), "os", "net", "math/rand",
			"math/rand/v2", "log/slog", "os/exec"),
			why: "what a tunnel is made of is decided purely; project asks, kernel does"},
		{from: module + "/nodeagent/cluster/apiobjects", never: pkgs("nodeagent/projection", "nodeagent/kernel", "nodeagent/cluster/facts", "nodeagent/cluster/kube",
			"nodeagent/peer/health", "nodeagent/peer/feed", "nodeagent/dns"),
			why: "the content of the API objects is decided elsewhere"},
		{from: module + "/nodeagent/cluster/apiobjects/corefile", never: []string{"os", "net", "math/rand", "log/slog", "k8s.io"},
			why: "the configuration of a cluster's DNS is edited as text only"},
		{from: module + "/nodeagent/observe/nftrace", never: pkgs("nodeagent/projection", "nodeagent/kernel", "nodeagent/converge", "schema/fabric"),
			why: "packets are followed without knowing what a clusterset is; the agent says which"},
		{from: module + "/nodeagent/model", never: append(pkgs("nodeagent/projection", "nodeagent/desired", "nodeagent/kernel", "nodeagent/peer/health", "nodeagent/round"),
			"os", "net", "math/rand", "log/slog"),
			why: "model is data only"},
		{from: module + "/nodeagent/desired", never: []string{"os", "net", "math/rand", "log/slog"},
			why: "desired is data only"},
		{from: module + "/view/ui", never: append(pkgs("lab", "reconciler", "render", "nodeagent/kernel", "nodeagent/converge"),
			"os", "os/exec", "k8s.io/client-go", "github.com/go-git/go-git"), deep: false,
			why: "the page asks no agents and no git: internal/cli/ui is its source"},
		{from: module + "/internal", exclude: module + "/internal/cli", never: pkgs("cmd", "internal/cli", "schema", "access", "discover", "render", "reconciler",
			"kubeclient", "install", "nodeagent", "view", "lab"),
			why: "internal has leaves, apart from the commands in internal/cli"},
		{from: module + "/internal/cli", exclude: module + "/internal/cli/root", never: commands,
			why: "groups of commands do not import each other: shared code is in its own package below internal/cli"},
		{from: module + "/cmd/hawser-agent", never: append(pkgs("reconciler", "render", "lab"),
			"github.com/go-git/go-git", "sigs.k8s.io/kustomize"), deep: true,
			why: "the agent binary holds no git and no kustomize"},
	}
}

// TestArrows checks every package of the module against the rules.
func TestArrows(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	for _, r := range rules() {
		matched := false
		for _, p := range packages {
			if !under(p.ImportPath, r.from) || r.exclude != "" && under(p.ImportPath, r.exclude) {
				continue
			}
			matched = true
			imports := p.Imports
			if r.deep {
				imports = p.Deps
			}
			for _, imported := range imports {
				if slices.ContainsFunc(r.never, func(never string) bool {
					return matchesForbidden(imported, never) && !slices.Contains(r.except, imported)
				}) {
					t.Errorf("%s imports %s: %s", p.ImportPath, imported, r.why)
				}
			}
		}
		if !matched {
			t.Errorf("no package under %s: fix the rule", r.from)
		}
	}
}

// matchesForbidden matches a package and the packages below it. The schema root does not include
// schema/fabric, which every package may import.
func matchesForbidden(imported, never string) bool {
	if never == module+"/schema" && strings.HasPrefix(imported, module+"/schema/fabric") {
		return false
	}
	if imported == module+"/nodeagent/kernel/nftables" {
		return false // a library without knowledge of clustersets, for nodeagent/observe/nftrace too
	}
	return under(imported, never) && !(never == "net" && imported != "net") && !(never == "os" && imported != "os")
}

func under(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// TestPure checks that pure packages have no calls whose result depends on more than their input.
func TestPure(t *testing.T) {
	t.Parallel()
	impure := regexp.MustCompile(`\b(time\.(Now|Since|After|Sleep|Tick)|os\.\w+|rand\.\w+|net\.(Dial|Listen|Lookup|Interface)\w*)\b`)
	for _, dir := range []string{
		"schema", "schema/document", "schema/load", "schema/tags", "schema/fieldpath", "schema/syntax", "schema/validate", "schema/overlap", "schema/capacity", "schema/linkconfig",
		"schema/lockfile", "schema/allocate", "schema/lockmerge", "schema/ownership", "internal/cidr", "internal/massdelete", "schema/fabric", "schema/fabric/reach", "schema/fabric/firewall", "view/clustermap", "view/clustermap/mapstatus", "access", "health", "view/matrix", "internal/svg", "view/swimlane", "internal/termsvg", "view/packettrace", "render", "render/plan",
		"nodeagent/projection", "nodeagent/round", "nodeagent/model", "nodeagent/mcs", "nodeagent/driver", "nodeagent/desired", "nodeagent/cluster/apiobjects/corefile", "discover",
	} {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if found := impure.Find(raw); found != nil {
				t.Errorf("%s calls %s: the package is pure", file, found)
			}
		}
	}
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps=false", "-json=ImportPath,Name,Dir,GoFiles,Deps,Imports,TestImports,XTestImports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		packages = append(packages, p)
	}
}
