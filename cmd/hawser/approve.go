package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

type approveFlags struct {
	file, key, against, repo, output string
	yes, list                        bool
}

func newApproveCommand(a *app) *cobra.Command {
	var f approveFlags
	cmd := &cobra.Command{
		Use:   "approve [COMMIT [DIR]]",
		Short: "Sign what waits for approval, or somebody else's commit",
		Long: `Show what waits for approval (trust.signers of the topology) and sign it with an
SSH key, as ssh-keygen does: with ssh-agent, passphrases and security keys. The
approval is a file beside the topology, to be committed; no root key is needed.

The candidate, on the branch "rendered-candidate" that hawser reconcile writes, is
compared with what the topology here gives, the lock included: approve from a
checkout that you reviewed. It is refused when anything differs but the public keys
that are made from the root key, which are listed. A clone without the branches, or
behind, gets them from where it was cloned.

With COMMIT: approve a commit whose signer does not own what it changes (owners in the
topology). It prints each change with its place and says who owns it, and writes the
signature to ` + reconciler.ApprovalsDir + `/COMMIT/NAME.sig beside the topology in DIR. gpg signs where git has
gpg.format openpgp, or --key openpgp:ID says so. The key's line of the
allowed_signers file has to allow the namespace ` + reconciler.ApprovalNamespace + `, or have
no namespaces option.

Exit codes: 0 approved, or nothing waits; with --list nothing waits; 1 refused, or your
key cannot approve it; with --list something waits; 2 error.`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.approve(cmd.Context(), f)
			}
			for _, name := range []string{"file", "against", "repo", "list", "yes"} {
				if cmd.Flags().Changed(name) {
					return fmt.Errorf("--%s is for what waits for approval, and not for a commit", name)
				}
			}
			return a.approveCommit(cmd.Context(), args, approveCommitFlags{key: f.key, output: f.output})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", ".", "topology, or its folder")
	flags.StringVar(&f.key, "key", "", "SSH key, or a public key whose other half ssh-agent has; of a commit: openpgp:ID for a key of gpg, too (default: the one in ~/.ssh that is a signer's; of a commit: git's user.signingKey, otherwise ~/.ssh/id_ed25519)")
	flags.StringVar(&f.against, "against", reconciler.DefaultPublishBranch, "branch that is published; the candidate is on the branch of this name with -candidate")
	flags.StringVar(&f.repo, "repo", "", "path or URL of the repository with the branches (default: the one that holds the file)")
	flags.BoolVar(&f.list, "list", false, "show who approved and who is missing, sign nothing")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	outputFlag(cmd, false, &f.output, "text", "json", "yaml")
	return cmd
}

// candidate is what waits for approval, and what it was compared with.
type candidate struct {
	render.Approval
	Branch string     `json:"branch"`
	Commit string     `json:"commit"`
	Keys   []madeKey  `json:"keys"` // public keys that change; only who has the root key can check them
	Plan   *plan.Plan `json:"plan"` // what publishing it changes
	File   string     `json:"file,omitempty"`
	By     string     `json:"by,omitempty"` // who approved now
	set    *schema.ClusterSet
	input  reconciler.BuildInput
	asked  []trust.Approvers
	built  *reconciler.Built
	tree   render.Tree
	have   render.Tree
	folder string // of the topology
}

// madeKey is a public key of the candidate that is not the published one.
type madeKey struct {
	Gateway string `json:"gateway"` // cluster/gateway
	Epoch   int    `json:"epoch"`
	Public  string `json:"public"`
	Before  string `json:"before,omitempty"` // empty = there was none
}

func (a *app) approve(ctx context.Context, f approveFlags) error {
	t, err := a.readTopology([]string{f.file})
	if err != nil {
		return err
	}
	c, err := a.candidate(ctx, t, f)
	if err != nil {
		return err
	}
	if c == nil || c.Enough() && f.list {
		return a.say1(f.output, "nothing waits for approval")
	}
	if f.list {
		var err error
		if f.output == "text" {
			_, err = fmt.Fprintf(a.out, "revision %d of clusterset %s waits for approval: %s\n", c.Revision, c.Clusterset, c.Approval)
		} else {
			err = a.encode(f.output, c.Approval)
		}
		if err != nil {
			return err
		}
		return answer{}
	}
	if err := c.compare(a); err != nil {
		return err
	}
	if f.output == "text" {
		if err := a.showCandidate(c); err != nil {
			return err
		}
	}
	if c.Enough() {
		return a.say1(f.output, "it is approved: "+c.String()+"; commit the approvals, and hawser reconcile publishes it")
	}
	key, err := c.findKey(f.key)
	if err != nil {
		return err
	}
	if err := a.confirm(f.yes, c); err != nil {
		return err
	}
	if err := c.sign(ctx, a, key); err != nil {
		return err
	}
	if f.output != "text" {
		return a.encode(f.output, c)
	}
	sign := ""
	if c.set.Spec.Trust.Commits != "" {
		sign = "-S "
	}
	_, err = fmt.Fprintf(a.out, "approved revision %d of clusterset %s as %s: %s\nwrote %s; hawser reconcile finds it when it is committed:\n\n"+
		"    git add %s\n    git commit %s-m 'approve revision %d'\n    git push\n", c.Revision, c.Clusterset, c.By, c.Approval, c.File, c.File, sign, c.Revision)
	return err
}

// say1 says one thing as text; other formats have it as message.
func (a *app) say1(format, text string) error {
	if format != "text" {
		return a.encode(format, map[string]string{"message": text})
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// candidate reads what waits; nil when nothing does.
func (a *app) candidate(ctx context.Context, t topology, f approveFlags) (*candidate, error) {
	set, _, err := a.load(t)
	if err != nil {
		return nil, err
	}
	branch := reconciler.CandidateBranch(f.against)
	in := publishedInput{file: t.file, address: f.repo, branch: branch, flag: "--against"}
	found, err := a.readPublished(ctx, in)
	if err != nil {
		return nil, err
	}
	in.branch, in.asked = f.against, found.Commit == "" && f.against != reconciler.DefaultPublishBranch
	have, err := a.readPublished(ctx, in)
	if err != nil {
		return nil, err
	}
	if found.Commit == "" || found.Commit == have.Commit {
		return nil, nil
	}
	c := &candidate{Branch: branch, Commit: found.Commit, Keys: []madeKey{}, set: set, tree: found.tree, have: have.tree, folder: filepath.Dir(t.file)}
	// The candidate, for the public keys in it, with the addresses that are in force.
	base := maps.Clone(c.tree)
	delete(base, reconciler.LockFile)
	if lock, ok := c.have[reconciler.LockFile]; ok {
		base[reconciler.LockFile] = lock
	}
	if c.input, err = buildInput(t, base, buildFlags{}); err != nil {
		return nil, err
	}
	c.input.Preview = true
	return c, c.read()
}

// read takes from the candidate what is to be signed, and the approvals that are in the
// checkout.
func (c *candidate) read() error {
	packed, proof, err := render.Delivered(c.tree)
	if err != nil {
		return fmt.Errorf("read candidate %s: %w", c.Commit, err)
	}
	var p trust.Proof
	var said trust.Statement
	if err := json.Unmarshal(proof, &p); err != nil {
		return fmt.Errorf("read candidate %s: its proof: %w", c.Commit, err)
	}
	if err := json.Unmarshal([]byte(p.Statement), &said); err != nil {
		return fmt.Errorf("read candidate %s: its statement: %w", c.Commit, err)
	}
	c.asked = p.Asked()
	for _, name := range c.input.Approvals.Paths() {
		if filepath.Join(render.ApprovalsDir, filepath.Dir(name)) == filepath.Clean(render.ApprovalOf(c.tree, c.set).Dir) {
			p.Signed = p.Approved([]string{string(c.input.Approvals[name])}, c.asked...)
		}
	}
	c.Approval = render.ApprovalIn(c.set, p)
	// Agents refuse what a statement does not fit, and what they would take must be what
	// is shown here.
	published := render.ApprovalOf(c.have, c.set).Revision
	switch {
	case said.Clusterset != c.set.Metadata.Name:
		return c.refuse("it is for clusterset %s, and this is %s", said.Clusterset, c.set.Metadata.Name)
	case said.SHA256 != trust.Hash(packed):
		return c.refuse("its statement is of another fabric than the one beside it")
	case !said.Approvers.Equal(c.set.Spec.Trust.Approvers()):
		return c.refuse("it names other signers, or another threshold, than trust of the topology here: git pull, and look at them")
	case said.Revision <= published:
		return c.refuse("its revision %d is not newer than %d, which is published", said.Revision, published)
	case said.Revision > max(published+1, time.Now().Add(24*time.Hour).Unix()):
		// Nothing could be published after it.
		return c.refuse("its revision %d is more than a day ahead of this machine's clock", said.Revision)
	}
	return nil
}

func (c *candidate) refuse(format string, args ...any) error {
	return answer{fmt.Sprintf("error: the candidate on branch %s (%.12s) is not to be approved: ", c.Branch, c.Commit) + fmt.Sprintf(format, args...)}
}

// compare renders the topology here and refuses a candidate that is something else.
func (c *candidate) compare(a *app) error {
	built, list := reconciler.Build(c.input)
	if list.HasErrors() {
		a.printFindings(list, map[string][]byte{c.input.File: c.input.Topology, c.input.LockFile: c.input.Lock})
		return fmt.Errorf("%s has errors: nothing was compared", c.input.File)
	}
	want, _, err := render.Delivered(built.Tree)
	if err != nil {
		return err
	}
	have, _, err := render.Delivered(c.tree)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, have) {
		p, err := plan.Compute(fabricAlone(c.tree), fabricAlone(built.Tree))
		if err != nil {
			return err
		}
		if err := p.Print(a.err, a.colored(a.err)); err != nil {
			return err
		}
		return c.refuse("it differs from what %s here gives, as listed above (+ is in the candidate alone): "+
			"git pull if the checkout is older, and do not approve what nobody committed", c.input.File)
	}
	c.built = built
	if c.Plan, err = plan.Compute(c.tree, c.have); err != nil {
		return err
	}
	c.Plan.Locate(func(path string) string {
		if pos := built.Source.Pos(path); pos.IsValid() {
			return fmt.Sprintf("%s:%d", pos.File, pos.Line)
		}
		return ""
	})
	before, err := render.FabricOf(c.have)
	if err != nil && !errors.Is(err, render.ErrNoFabric) {
		return fmt.Errorf("read what is published: %w", err)
	}
	c.Keys = madeKeys(c.set, built.Fabric, before)
	return nil
}

// fabricAlone leaves of a tree what approval is of.
func fabricAlone(tree render.Tree) render.Tree {
	out := render.Tree{}
	for name, raw := range tree {
		if strings.HasPrefix(name, "base/fabric") {
			out[name] = raw
		}
	}
	return out
}

// madeKeys gives the public keys that are new in a fabric and that no gateway brought.
func madeKeys(set *schema.ClusterSet, now, before *fabric.Fabric) []madeKey {
	type id struct {
		gateway string
		epoch   int
	}
	known := map[id]fabric.Key{}
	each := func(f *fabric.Fabric, do func(id, fabric.Key)) {
		for _, c := range f.Clusters {
			for _, g := range c.Gateways {
				for _, k := range g.Keys {
					do(id{c.Name + "/" + g.Name, k.Epoch}, k)
				}
			}
		}
	}
	if before != nil {
		each(before, func(i id, k fabric.Key) { known[i] = k })
	}
	brought := map[string]bool{}
	for _, c := range set.Spec.Clusters {
		for _, g := range c.AllGateways() {
			brought[c.Name+"/"+g.Name] = g.PublicKey != ""
		}
	}
	out := []madeKey{}
	each(now, func(i id, k fabric.Key) {
		if k != known[i] && !brought[i.gateway] {
			out = append(out, madeKey{Gateway: i.gateway, Epoch: i.epoch, Public: k.Public, Before: known[i].Public})
		}
	})
	return out
}

func (a *app) showCandidate(c *candidate) error {
	if err := c.Plan.Print(a.out, a.colored(a.out)); err != nil {
		return err
	}
	if len(c.Keys) > 0 {
		t := table{title: "Public keys that the reconciler made from the root key, which cannot be checked here", head: []string{"GATEWAY", "EPOCH", "PUBLIC KEY", "BEFORE"}}
		for _, k := range c.Keys {
			t.rows = append(t.rows, []string{k.Gateway, fmt.Sprint(k.Epoch), k.Public, k.Before})
		}
		if _, err := fmt.Fprintf(a.out, "\n%s", t.String()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.out, "\nRevision %d of clusterset %s follows from %s: %s\n", c.Revision, c.Clusterset, c.input.File, c.Approval)
	return err
}

// confirm asks, where there is somebody to ask.
func (a *app) confirm(yes bool, c *candidate) error {
	if yes {
		return nil
	}
	if in, ok := a.in.(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
		return errors.New("there is no terminal to ask on: --yes approves what is shown")
	}
	_, _ = fmt.Fprintf(a.err, "Approve revision %d of clusterset %s? [y/N] ", c.Revision, c.Clusterset)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && line == "" {
		return fmt.Errorf("read the answer: %w", err)
	}
	if text := strings.ToLower(strings.TrimSpace(line)); text != "y" && text != "yes" {
		return answer{"not approved"}
	}
	return nil
}

// findKey gives the file of the key to sign with, after a look at its public half where
// there is one.
func (c *candidate) findKey(file string) (string, error) {
	if file != "" {
		if public, ok := publicHalf(file); ok {
			return file, c.mayApprove(public)
		}
		return file, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a key: %w (name one with --key)", err)
	}
	for _, name := range []string{"id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa"} {
		file := filepath.Join(home, ".ssh", name)
		if public, ok := publicHalf(file); ok && c.mayApprove(public) == nil {
			return file, nil
		}
	}
	return "", answer{"error: no key in " + filepath.Join(home, ".ssh") + " is a signer's: these can approve: " + strings.Join(c.missing(), ", ") + " (name the key with --key)"}
}

// publicHalf reads FILE.pub, or FILE where that is a public key itself.
func publicHalf(file string) (string, bool) {
	for _, name := range []string{file + ".pub", file} {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if key, _, _, _, err := ssh.ParseAuthorizedKey(raw); err == nil {
			return trust.Line(key), true
		}
	}
	return "", false
}

// mayApprove refuses a key of which no approval is missing.
func (c *candidate) mayApprove(public string) error {
	name, known := c.set.Spec.Trust.SignerOf(public)
	for i, a := range c.asked {
		if slices.Contains(a.Keys, public) && (!known || slices.Contains(c.Groups[i].Missing, name)) {
			return nil
		}
	}
	if known && slices.ContainsFunc(c.asked, func(a trust.Approvers) bool { return slices.Contains(a.Keys, public) }) {
		return answer{fmt.Sprintf("error: %s has approved revision %d: %s", name, c.Revision, c.Approval)}
	}
	return answer{fmt.Sprintf("error: key %s is none of a signer: these can approve: %s", public, strings.Join(c.missing(), ", "))}
}

// missing names who has not approved.
func (c *candidate) missing() []string {
	var out []string
	for _, g := range c.Groups {
		for _, name := range g.Missing {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// sign approves with a key, and writes the approval beside the topology.
func (c *candidate) sign(ctx context.Context, a *app, key string) error {
	dir, err := os.MkdirTemp("", "hawser-approve-")
	if err != nil {
		return fmt.Errorf("make a folder for the statement: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // holds nothing secret
	statement := filepath.Join(dir, "statement")
	if err := os.WriteFile(statement, []byte(c.Statement), 0o600); err != nil {
		return fmt.Errorf("write the statement: %w", err)
	}
	// A file, as git has it: ssh-keygen asks for a passphrase on stdin.
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-n", string(trust.Approval), "-f", key, statement)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.err, a.err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("sign with ssh-keygen -Y sign -f %s: %w", key, err)
	}
	armored, err := os.ReadFile(statement + ".sig")
	if err != nil {
		return fmt.Errorf("read what ssh-keygen signed: %w", err)
	}
	public, err := trust.ApproverOf(c.Statement, string(armored))
	if err != nil {
		return fmt.Errorf("check what ssh-keygen signed with %s: %w", key, err)
	}
	if err := c.mayApprove(public); err != nil {
		return err
	}
	name, known := c.set.Spec.Trust.SignerOf(public)
	file := name
	if !known { // of those in force, whom this topology removes
		sum := sha256.Sum256([]byte(public))
		file = "key-" + hex.EncodeToString(sum[:])[:12]
		name = public
	}
	c.By, c.File = name, filepath.Join(c.folder, filepath.FromSlash(c.Dir), file+".sig")
	if err := os.MkdirAll(filepath.Dir(c.File), 0o755); err != nil {
		return fmt.Errorf("make the folder of approvals: %w", err)
	}
	if err := atomicfile.Replace(c.File, armored, 0o644); err != nil {
		return err
	}
	c.input.Approvals[strings.TrimPrefix(c.Dir, render.ApprovalsDir+"/")+"/"+file+".sig"] = armored
	return c.read()
}
