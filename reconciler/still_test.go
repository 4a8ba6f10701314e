//go:build !race

package reconciler

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/randtest"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
)

// TestNothingPublishedMoves generates random histories. Up to six branches at a time add, change
// and remove clusters, gateways, exports and pools. They allocate with the current, an outdated or
// no published lock. git merges the branches in random order. Conflicts are resolved with one side
// and hawser allocate. Each merge is published by Allocate, or in some histories by a whole
// reconciler. SEED=n runs one history. ROUNDS=n runs n times as many histories.
func TestNothingPublishedMoves(t *testing.T) {
	t.Parallel()
	first, count := uint64(1), uint64(randtest.Rounds(t, 60))
	if seed, set := randtest.Seed(t); set {
		first, count = seed, 1
	}
	const workers = 2
	var next, merges, conflicts, refused, hopeless atomic.Uint64
	for w := range workers {
		t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			git(t, dir, "init", "-q", "--bare", "-b", "main")
			for i := next.Add(1) - 1; i < count && !t.Failed(); i = next.Add(1) - 1 {
				var s *history
				if (first+i)%60 == 0 {
					whole := newTestEnv(t, true, func(c *Config) { c.AllowMassDelete = true })
					s = newHistory(t, whole.repo, first+i, whole)
				} else {
					s = newHistory(t, dir, first+i, nil)
				}
				s.run(10)
				merges.Add(uint64(s.merges))
				conflicts.Add(uint64(s.conflicts))
				refused.Add(uint64(s.refused))
				hopeless.Add(uint64(s.hopeless))
			}
		})
	}
	t.Cleanup(func() {
		merges, conflicts, refused, hopeless := merges.Load(), conflicts.Load(), refused.Load(), hopeless.Load()
		t.Logf("%d merges, %d with conflicts, %d refused until hawser allocate, %d left out",
			merges, conflicts, refused, hopeless)
		tries := merges >= 4*count && conflicts >= count/2 && refused >= count/20 && 5*hopeless <= merges
		if count > 1 && !t.Failed() && !tries {
			t.Error("the histories no longer cover enough merges, conflicts and refusals")
		}
	})
}

// history is one random history.
type history struct {
	t        *testing.T
	seed     uint64
	r        *rand.Rand
	dir      string
	store    *gitrepo.Store
	objects  *gogit.Repository
	pending  bool     // locks are not committed to the source branch
	whole    *testEnv // publishes with a whole reconciler; nil = with Allocate only
	main     version
	branches []*branch
	lock     string          // published
	was      facts           // addresses in the published lock
	freed    map[string]bool // item and address that --gc of a merged branch removed
	moving   map[string]bool // items that the merged branch moves on purpose
	log      []string
	loaded   map[string]*schema.ClusterSet // topologies by text; nil = with errors

	merges, conflicts, refused, hopeless int
}

// version is a commit with its topology and lock.
type version struct {
	commit         gitrepo.Hash
	topology, lock string
}

type branch struct {
	version
	base  version
	seen  string          // lock that was published when the branch started
	freed map[string]bool // by its gc
	moved map[string]bool // by hawser allocate --move
}

func newHistory(t *testing.T, dir string, seed uint64, whole *testEnv) *history {
	t.Helper()
	store, err := gitrepo.Open(gitrepo.Config{URL: dir, ExplicitURL: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	objects, err := gogit.PlainOpen(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 18))
	s := &history{t: t, seed: seed, r: r, dir: dir, store: store, objects: objects, whole: whole,
		pending: whole == nil && r.IntN(3) == 0, freed: map[string]bool{}, loaded: map[string]*schema.ClusterSet{}}
	d := &draft{services: "243.0.0.0/27", tunnel: "241.0.0.0/27", pool: "242.0.0.0/19", egress: 2,
		clusters: map[string]*draftCluster{}, exports: map[string]*draftExport{}}
	for i := range 3 {
		d.addCluster(fmt.Sprintf("b%d", 2*i), "")
		d.exports[fmt.Sprintf("e%d", 2*i)] = &draftExport{clusters: []string{fmt.Sprintf("b%d", 2*i)}}
	}
	s.main.topology = d.text()
	s.commitMain(s.main.topology, "")
	if !s.publish() {
		s.fail("the first commit is refused")
	}
	return s
}

func (s *history) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("SEED=%d: %s\n%s\npublished:\n%s\nmain:\n%s\n%s", s.seed, fmt.Sprintf(format, args...),
		strings.Join(s.log, "\n"), s.lock, s.main.topology, s.main.lock)
}

func (s *history) logf(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *history) run(steps int) {
	for range steps {
		switch n := s.r.IntN(10); {
		case len(s.branches) == 0 || n < 4 && len(s.branches) < 6:
			s.branches = append(s.branches, s.startBranch())
		case n < 6:
			s.edit(s.branches[s.r.IntN(len(s.branches))])
		default:
			s.mergeOne()
		}
	}
	for len(s.branches) > 0 {
		s.mergeOne()
	}
}

// load returns a topology, or nil if it has errors.
func (s *history) load(topology string) *schema.ClusterSet {
	set, known := s.loaded[topology]
	if !known {
		var list diag.List
		if set, _, list = load.Topology(TopologyFile, []byte(topology)); list.HasErrors() {
			set = nil
		}
		s.loaded[topology] = set
	}
	return set
}

// write commits both files and returns the hash.
func (s *history) write(parent gitrepo.Hash, topology, lock string) gitrepo.Hash {
	files := map[string][]byte{TopologyFile: []byte(topology), LockFile: []byte(lock)}
	commit, err := s.store.Write(gitrepo.Commit{Parent: parent, Files: files,
		Name: "t", Email: "t@t", When: time.Unix(1, 0), Message: "x"})
	if err != nil {
		s.t.Fatal(err)
	}
	return commit
}

func (s *history) commitMain(topology, lock string) {
	s.main = version{commit: s.write(s.main.commit, topology, lock), topology: topology, lock: lock}
}

func (s *history) startBranch() *branch {
	b := &branch{version: s.main, base: s.main, seen: s.lock, freed: map[string]bool{}, moved: map[string]bool{}}
	s.logf("branch from %s", short(s.main.commit.String()))
	s.edit(b)
	return b
}

// edit changes the topology of a branch, and usually its lock.
func (s *history) edit(b *branch) {
	set := s.load(b.topology)
	if set == nil {
		s.fail("a branch holds a bad topology")
	}
	d := draftOf(set)
	for range 1 + s.r.IntN(3) {
		s.logf("  %s", d.change(s.r))
	}
	topology, lock := d.text(), b.lock
	if s.load(topology) == nil {
		s.logf("  invalid: not committed")
		return
	}
	published := ""
	switch s.r.IntN(4) {
	case 0: // the branch does not read the published lock
	case 1:
		published = b.seen
	default:
		published = s.lock
	}
	switch s.r.IntN(12) {
	case 0:
		s.logf("  without allocate")
	case 1:
		lock = spoil(lock, s.r)
		s.logf("  a line of the lock is gone or changed")
	case 2, 3:
		lock = s.gc(b, topology, lock, published)
	case 4:
		lock = s.move(b, topology, lock, published)
	default:
		if text, ok := s.allocate(topology, lock, published); ok {
			lock = text
		}
	}
	b.version = version{commit: s.write(b.commit, topology, lock), topology: topology, lock: lock}
}

// allocate runs hawser allocate and returns the lock.
func (s *history) allocate(topology, lock, published string) (string, bool) {
	set := s.load(topology)
	if set == nil {
		return "", false
	}
	out, list := Allocate(AllocateInput{
		Set: set, File: LockFile, Committed: []byte(lock), Published: []byte(published), FixMoves: true,
	})
	if list.HasErrors() {
		return "", false
	}
	raw, err := out.Lock.Marshal()
	if err != nil {
		s.fail("%v", err)
	}
	return string(raw), true
}

// gc runs hawser allocate --gc. After the merge of the branch, other items can have the removed
// addresses.
func (s *history) gc(b *branch, topology, lock, published string) string {
	before, ok := s.allocate(topology, lock, published)
	if !ok {
		return lock
	}
	set := s.load(topology)
	full, list := lockfile.Read(LockFile, []byte(before))
	if list.HasErrors() {
		s.fail("%v", list.Err())
	}
	out, list := allocate.Allocate(set, full.GC(set))
	if list.HasErrors() {
		return lock
	}
	raw, err := out.Marshal()
	if err != nil {
		s.fail("%v", err)
	}
	had, has := readFacts(before), readFacts(string(raw))
	for item, values := range had {
		for _, v := range values {
			if !slices.Contains(has[item], v) {
				b.freed[item+" "+v] = true
			}
		}
	}
	s.logf("  gc")
	return string(raw)
}

// move runs hawser allocate --move for one line of the lock.
func (s *history) move(b *branch, topology, lock, published string) string {
	before, ok := s.allocate(topology, lock, published)
	if !ok {
		return lock
	}
	item := anyOf(s.r, readFacts(before))
	set := s.load(topology)
	full, _ := lockfile.Read(LockFile, []byte(before))
	out, list := allocate.Move(full, set, item)
	if list.HasErrors() {
		s.logf("  no move of %s: %v", item, list.Err())
		return before
	}
	raw, err := out.Marshal()
	if err != nil {
		s.fail("%v", err)
	}
	s.logf("  move of %s", item)
	b.moved[item] = true
	return string(raw)
}

// spoil removes a line of a lock, or replaces its value by the value of another line.
func spoil(lock string, r *rand.Rand) string {
	lines := strings.Split(lock, "\n")
	i, j := r.IntN(len(lines)), r.IntN(len(lines))
	if !strings.HasPrefix(lines[i], "  ") || !strings.HasPrefix(lines[j], "  ") {
		return lock
	}
	if r.IntN(2) == 0 {
		return strings.Join(slices.Delete(lines, i, i+1), "\n")
	}
	key, _, _ := strings.Cut(lines[i], ": ")
	like, value, _ := strings.Cut(lines[j], ": ")
	if key[strings.LastIndexByte(key, '.')+1:] != like[strings.LastIndexByte(like, '.')+1:] {
		return lock
	}
	lines[i] = key + ": " + value
	return strings.Join(lines, "\n")
}

// mergeOne merges a branch into main and publishes main.
func (s *history) mergeOne() {
	i := s.r.IntN(len(s.branches))
	b := s.branches[i]
	s.branches = slices.Delete(s.branches, i, i+1)
	before := s.main
	topology, lock, clean := s.merge(b)
	s.merges++
	s.logf("merge of a branch from %s, clean: %v", short(b.base.commit.String()), clean)
	if s.load(topology) == nil {
		topology, clean = []string{before.topology, b.topology}[s.r.IntN(2)], false
	}
	if !clean {
		s.conflicts++
		if text, ok := s.allocate(topology, lock, s.lock); ok {
			lock = text
		}
	}
	maps.Copy(s.freed, b.freed)
	s.moving = b.moved
	defer func() { s.moving = nil }()
	s.commitMain(topology, lock)
	if s.publish() {
		return
	}
	s.refused++
	if text, ok := s.allocate(topology, lock, s.lock); ok {
		s.logf("refused, and allocated")
		s.commitMain(topology, text)
		if !s.publish() {
			s.fail("hawser allocate did not correct the commit:\n%s\n%s", topology, text)
		}
		return
	}
	// An allocation does not fit, or a pinned block is in use: drop the branch.
	s.hopeless++
	s.commitMain(before.topology, before.lock)
	if !s.publish() {
		s.fail("the previous commit is refused")
	}
}

// merge merges a branch with git. A file with conflicts has the content of one side.
func (s *history) merge(b *branch) (topology, lock string, clean bool) {
	cmd := exec.Command("git", "--git-dir", s.dir, "merge-tree", "--write-tree", "--name-only", "--no-messages",
		s.main.commit.String(), b.commit.String())
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		s.t.Fatalf("git merge-tree: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	tree, err := object.GetTree(s.objects.Storer, plumbing.NewHash(lines[0]))
	if err != nil {
		s.t.Fatal(err)
	}
	file := func(name, ours, theirs string) string {
		if slices.Contains(lines[1:], name) {
			return []string{ours, theirs}[s.r.IntN(2)]
		}
		f, err := tree.File(name)
		if err != nil {
			s.t.Fatal(err)
		}
		text, err := f.Contents()
		if err != nil {
			s.t.Fatal(err)
		}
		return text
	}
	return file(TopologyFile, s.main.topology, b.topology), file(LockFile, s.main.lock, b.lock), len(lines) == 1
}

// publish publishes main as the reconciler does. It reports whether the commit is accepted.
func (s *history) publish() bool {
	if s.whole != nil {
		return s.publishWhole()
	}
	set := s.load(s.main.topology)
	if set == nil {
		s.logf("refused")
		return false
	}
	out, list := Allocate(AllocateInput{Set: set, File: LockFile, Committed: []byte(s.main.lock), Published: []byte(s.lock)})
	if list.HasErrors() {
		s.logf("refused: %v", list.Err())
		return false
	}
	raw, err := out.Lock.Marshal()
	if err != nil {
		s.fail("%v", err)
	}
	s.check(set, string(raw))
	s.lock = string(raw)
	if len(out.Stale) > 0 && !s.pending {
		s.commitMain(s.main.topology, s.lock)
	}
	return true
}

// publishWhole publishes main with a whole reconciler.
func (s *history) publishWhole() bool {
	git(s.t, s.dir, "update-ref", "refs/heads/main", s.main.commit.String())
	_, failure := s.whole.Once(s.t.Context())
	if failure != nil {
		s.logf("refused: %v", failure)
		if failure.Reason != ReasonInvalid && failure.Reason != ReasonMoves {
			s.fail("%s: %v", failure.Reason, failure)
		}
		return false
	}
	set := s.load(s.main.topology)
	lock := s.whole.file(DefaultPublishBranch, LockFile) + "\n"
	s.check(set, lock)
	s.lock = lock
	s.main = version{commit: hash(git(s.t, s.dir, "rev-parse", "main")), topology: s.main.topology,
		lock: s.whole.file("main", LockFile) + "\n"}
	return true
}

// facts contains the addresses and prefixes of a lock by item, without released ones.
type facts map[string][]string

func readFacts(lock string) facts {
	out := facts{}
	lock, _, _ = strings.Cut(lock, "\nreleased:")
	for line := range strings.Lines(lock) {
		item, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || !strings.HasPrefix(line, "  ") {
			continue
		}
		for part := range strings.SplitSeq(strings.Trim(value, "[]"), ", ") {
			first, last, isRange := strings.Cut(part, "-")
			out[item] = append(out[item], first)
			for a := first; isRange && a != last; {
				a = netip.MustParseAddr(a).Next().String()
				out[item] = append(out[item], a)
			}
		}
	}
	return out
}

// check compares the new lock with the published one. It shares no code with lockmerge.
func (s *history) check(set *schema.ClusterSet, lock string) {
	now := readFacts(lock)
	blocks := map[string]netip.Prefix{}
	for i := range set.Spec.Clusters {
		name := set.Spec.Clusters[i].Name
		if b := now["clusters["+name+"].blocks"]; len(b) == 1 {
			blocks[name] = netip.MustParsePrefix(b[0])
		}
	}
	// room returns the prefix that the topology reserves for an item. An item outside of it
	// must move.
	room := func(item string) netip.Prefix {
		switch {
		case strings.HasSuffix(item, ".vips"):
			return set.Spec.Services.CIDR
		case strings.Contains(item, "].gateways["):
			return set.Spec.Tunnel.CIDR
		case strings.HasPrefix(item, "exports["):
			_, name, _ := strings.Cut(item, "].clusters[")
			name, _, _ = strings.Cut(name, "]")
			return blocks[name]
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(item, "clusters["), "]")
		return blocks[name]
	}
	for _, item := range slices.Sorted(maps.Keys(s.was)) {
		values := slices.DeleteFunc(slices.Clone(s.was[item]), func(v string) bool {
			return s.freed[item+" "+v] && !slices.Contains(now[item], v)
		})
		for i, v := range values {
			there := slices.Index(now[item], v)
			if there == i || there > 0 && s.moving[item] {
				continue
			}
			switch {
			case strings.HasSuffix(item, ".former"), strings.HasSuffix(item, ".extensionBlocks"):
				name, _, _ := strings.Cut(strings.TrimPrefix(item, "clusters["), "]")
				p := netip.MustParsePrefix(v)
				if own := blocks[name]; there < 0 && !(own.IsValid() && own.Bits() <= p.Bits() && own.Contains(p.Addr())) {
					s.fail("%s lost %s", item, v)
				}
			case strings.HasSuffix(item, ".blocks"):
				name, _, _ := strings.Cut(strings.TrimPrefix(item, "clusters["), "]")
				c, block := set.Cluster(name), netip.MustParsePrefix(v)
				pinned := c != nil && c.GlobalCIDR.IsValid() && c.GlobalCIDR.Masked() != block
				pool := set.Spec.Globalnet.CIDR
				if s.moving[item] && slices.Contains(now["clusters["+name+"].former"], v) {
					continue
				}
				if outside := pool.Bits() > block.Bits() || !pool.Contains(block.Addr()); !pinned && !outside {
					s.fail("%s moved from %s to %v", item, v, now[item])
				}
			case strings.HasSuffix(item, ".ordinal"):
				s.fail("%s moved from %s to %v", item, v, now[item])
			case strings.Contains(item, ".mappings["):
				if p := room(item); !p.IsValid() || p.Contains(netip.MustParsePrefix(v).Addr()) {
					s.fail("%s moved from %s to %v", item, v, now[item])
				}
			default:
				if p := room(item); !p.IsValid() || p.Contains(netip.MustParseAddr(v)) {
					s.fail("%s moved from %v to %v", item, values, now[item])
				}
			}
		}
	}
	s.apart(now)
	s.was = now
}

// apart checks that no two items have the same address.
func (s *history) apart(now facts) {
	owner := map[string]string{}
	type part struct {
		prefix  netip.Prefix
		cluster string
		mapping bool
	}
	var parts []part
	for _, item := range slices.Sorted(maps.Keys(now)) {
		cluster, _, _ := strings.Cut(strings.TrimPrefix(item, "clusters["), "]")
		for _, v := range now[item] {
			if p, err := netip.ParsePrefix(v); err == nil {
				parts = append(parts, part{p, cluster, strings.Contains(item, ".mappings[")})
				continue
			}
			if strings.HasSuffix(item, ".ordinal") {
				v = cluster + " " + v
			}
			if other, dup := owner[v]; dup {
				s.fail("%s and %s both have %s", item, other, v)
			}
			owner[v] = item
		}
	}
	for i, a := range parts {
		for _, b := range parts[:i] {
			if a.prefix.Overlaps(b.prefix) && (a.cluster != b.cluster || a.mapping && b.mapping) {
				s.fail("%s of %s and %s of %s overlap", a.prefix, a.cluster, b.prefix, b.cluster)
			}
		}
	}
}

// draft is an editable topology.
type draft struct {
	services, tunnel, pool string
	egress                 int
	clusters               map[string]*draftCluster
	exports                map[string]*draftExport
}

type draftCluster struct {
	pin      string
	pods     []string
	gateways []string
}

type draftExport struct {
	clusters []string
	hosts    int // number of hostnames of a headless export; 0 = not headless
}

func draftOf(set *schema.ClusterSet) *draft {
	d := &draft{services: set.Spec.Services.CIDR.String(), tunnel: set.Spec.Tunnel.CIDR.String(),
		pool:   set.Spec.Globalnet.CIDR.String(),
		egress: set.Spec.Globalnet.EgressIPs, clusters: map[string]*draftCluster{}, exports: map[string]*draftExport{}}
	for _, c := range set.Spec.Clusters {
		dc := &draftCluster{}
		if c.GlobalCIDR.IsValid() {
			dc.pin = c.GlobalCIDR.String()
		}
		for _, p := range c.PodCIDRs {
			dc.pods = append(dc.pods, p.String())
		}
		for _, g := range c.Gateways {
			dc.gateways = append(dc.gateways, g.Name)
		}
		d.clusters[c.Name] = dc
	}
	for _, e := range set.Spec.Exports {
		d.exports[e.Name] = &draftExport{clusters: slices.Clone(e.Clusters), hosts: e.Hostnames.Count}
	}
	return d
}

// text returns the topology as YAML. Comments separate the items, so that most merges are clean.
func (d *draft) text() string {
	var out bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("apiVersion: %s\nkind: ClusterSet\nmetadata: {name: demo}\nspec:", schema.APIVersion)
	line("  globalnet:\n    cidr: %s\n    # pool above, egress below\n    egressIPs: %d", d.pool, d.egress)
	line("  services: {cidr: %s}\n  # between\n  tunnel: {cidr: %s}\n  clusters:", d.services, d.tunnel)
	for _, name := range slices.Sorted(maps.Keys(d.clusters)) {
		c := d.clusters[name]
		line("  # cluster %s\n  #\n  - name: %s\n    podCIDRs: [%s]\n    serviceCIDRs: [10.77.0.0/16]\n    recipient: %s",
			name, name, strings.Join(c.pods, ", "), recipient)
		if c.pin != "" && netip.MustParsePrefix(d.pool).Contains(netip.MustParsePrefix(c.pin).Addr()) {
			line("    globalCIDR: %s", c.pin)
		}
		line("    # gateways of %s\n    gateways:", name)
		for _, g := range c.gateways {
			line("    - {name: %s, node: %s, endpoints: [198.18.%d.%s]}", g, g, slices.Index(clusterNames(), name), g[1:])
		}
		line("  # end of %s", name)
	}
	if len(d.exports) == 0 {
		return out.String()
	}
	line("  exports:")
	for _, name := range slices.Sorted(maps.Keys(d.exports)) {
		e := d.exports[name]
		line("  # export %s\n  #\n  - name: %s\n    namespace: shop\n    clusters: [%s]\n    ports: [{port: 80}]",
			name, name, strings.Join(e.clusters, ", "))
		if e.hosts > 0 {
			line("    type: Headless\n    hostnames: %d", e.hosts)
		}
		line("  # end of %s", name)
	}
	return out.String()
}

func clusterNames() []string {
	var out []string
	for _, letter := range "abc" {
		for i := range 5 {
			out = append(out, fmt.Sprintf("%c%d", letter, i))
		}
	}
	return out
}

func (d *draft) addCluster(name, pin string) {
	d.clusters[name] = &draftCluster{pin: pin, pods: []string{"10.7.0.0/26"}, gateways: []string{"g1"}}
}

func anyOf[T any](r *rand.Rand, m map[string]T) string {
	names := slices.Sorted(maps.Keys(m))
	return names[r.IntN(len(names))]
}

// change makes one random change and returns its description.
func (d *draft) change(r *rand.Rand) string {
	cluster := anyOf(r, d.clusters)
	c := d.clusters[cluster]
	switch n := r.IntN(24); {
	case n < 4:
		name := clusterNames()[r.IntN(15)]
		if d.clusters[name] == nil {
			d.addCluster(name, []string{"", "", "", "", "", "", "", fmt.Sprintf("242.0.%d.0/24", r.IntN(32))}[r.IntN(8)])
		}
		return "add cluster " + name
	case n < 6 && len(d.clusters) > 2:
		delete(d.clusters, cluster)
		for name, e := range d.exports {
			e.clusters = slices.DeleteFunc(e.clusters, func(c string) bool { return c == cluster })
			if len(e.clusters) == 0 {
				delete(d.exports, name)
			}
		}
		return "remove cluster " + cluster
	case n < 9:
		g := fmt.Sprintf("g%d", 1+r.IntN(4))
		if i := slices.Index(c.gateways, g); i < 0 {
			c.gateways = append(c.gateways, g)
		} else if len(c.gateways) > 1 {
			c.gateways = slices.Delete(c.gateways, i, i+1)
		}
		return "gateway " + cluster + "/" + g
	case n < 16:
		name := fmt.Sprintf("e%d", r.IntN(10))
		e := d.exports[name]
		if e == nil {
			d.exports[name] = &draftExport{clusters: []string{cluster}, hosts: max(0, r.IntN(6)-3)}
		} else if !slices.Contains(e.clusters, cluster) {
			e.clusters = append(e.clusters, cluster)
		}
		return "export " + name + " from " + cluster
	case n < 19 && len(d.exports) > 1:
		name := anyOf(r, d.exports)
		delete(d.exports, name)
		return "remove export " + name
	case n < 20:
		c.pods = []string{fmt.Sprintf("10.%d.0.0/26", 7+r.IntN(3))}
		return "other pods of " + cluster
	case n < 21:
		d.egress = 1 + r.IntN(4)
		return fmt.Sprint("egress addresses: ", d.egress)
	case n < 22:
		d.services = []string{"243.0.0.0/27", "243.0.0.0/26", "243.0.1.0/27"}[r.IntN(3)]
		return "services in " + d.services
	case n < 23:
		d.pool = []string{"242.0.0.0/19", "242.0.0.0/18", "242.0.32.0/19"}[r.IntN(3)]
		return "blocks in " + d.pool
	default:
		c.pin = ""
		if r.IntN(2) == 0 {
			c.pin = fmt.Sprintf("242.0.%d.0/24", r.IntN(32))
		}
		return "pin of " + cluster + ": " + c.pin
	}
}
