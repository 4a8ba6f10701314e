package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/repo"
)

type approveCommitFlags struct {
	key    string
	output string
}

// approvedCommit is the JSON form of `hawser approve COMMIT`.
type approvedCommit struct {
	Commit  string           `json:"commit"`
	Subject string           `json:"subject"`
	Signers []string         `json:"signers"`
	Changes []approvedChange `json:"changes"`
	// Approver are the principals of who approved it, File is where that stands; both are
	// empty when it needs no approval.
	Approver []string `json:"approver,omitempty"`
	File     string   `json:"file,omitempty"`
}

type approvedChange struct {
	Did    string   `json:"did"`
	Item   string   `json:"item"`
	Path   string   `json:"path,omitempty"`
	Source string   `json:"source"`
	Owners []string `json:"owners,omitempty"`
	Owned  bool     `json:"owned"` // by who signed the commit
}

func (a *app) approveCommit(ctx context.Context, args []string, f approveCommitFlags) error {
	dir := "."
	if len(args) > 1 {
		dir = args[1]
	}
	review, err := a.reviewCommit(ctx, dir, args[0])
	if err != nil {
		return err
	}
	out := approvedCommit{Commit: review.Commit, Subject: review.Subject, Signers: review.Signers,
		Changes: []approvedChange{}}
	needed := false
	for _, d := range review.Changes {
		owned := review.Owned(d, review.Signers)
		needed = needed || !owned
		out.Changes = append(out.Changes, approvedChange{Did: d.Did, Item: d.Item, Path: d.Path,
			Source: d.Pos.String(), Owners: d.Owners, Owned: owned})
	}
	if f.output == "text" {
		signers := strings.Join(out.Signers, ", ")
		if signers == "" {
			signers = "nobody who counts"
		}
		_, _ = fmt.Fprintf(a.out, "commit %s, signed by %s\n  %s\n\n", out.Commit, signers, out.Subject)
		for i, change := range out.Changes {
			_, _ = fmt.Fprintf(a.out, "  %s %s  # %s\n", change.Did, change.Item, change.Source)
			if !change.Owned {
				_, _ = fmt.Fprintf(a.out, "      %s\n", review.WhoMay(review.Changes[i]))
			}
		}
	}
	if needed {
		if len(review.Signers) == 0 {
			return answer{"nobody whom the allowed_signers file before it names signed the commit: " +
				"it has to be signed before an approval counts"}
		}
		if out.Approver, out.File, err = a.signApproval(ctx, review, dir, f.key); err != nil {
			return err
		}
	}
	switch {
	case f.output != "text":
		return a.encode(f.output, out)
	case !needed:
		_, err = fmt.Fprintln(a.out, "\nIt needs no approval: its signer owns all of that.")
	default:
		_, err = fmt.Fprintf(a.out, "\nApproved by %s. Commit the approval on top of the commit, signed, and push:\n"+
			"  git add %s\n  git commit -S -m 'approve %s'\n  git push\n",
			strings.Join(out.Approver, ", "), out.File, review.Commit[:12])
	}
	return err
}

// reviewCommit looks at a commit of the repository that holds a folder with a topology.
func (a *app) reviewCommit(ctx context.Context, dir, commit string) (*reconciler.Review, error) {
	full, err := gitIn(ctx, dir, "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("find commit %s in %s: %w (git fetch brings what others pushed)", commit, dir, err)
	}
	folder, err := gitIn(ctx, dir, "rev-parse", "--show-prefix")
	if err != nil {
		return nil, fmt.Errorf("find the repository of %s: %w", dir, err)
	}
	store, err := openRepo(ctx, repo.Config{URL: dir})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, reconciler.TopologyFile)
	p, err := a.readPublished(ctx, publishedInput{file: file, branch: reconciler.DefaultPublishBranch, flag: "--against"})
	if err != nil {
		_, _ = fmt.Fprintf(a.err, "warning: addresses that were never committed count as written by hand: read what is published: %v\n", err)
	}
	return reconciler.ReviewCommit(store, strings.TrimSuffix(folder, "/"), full, p.tree[reconciler.LockFile], time.Now())
}

// signApproval has ssh-keygen or gpg sign a commit and writes the approval where it
// belongs. It gives the principals of the key and the file.
func (a *app) signApproval(ctx context.Context, r *reconciler.Review, dir, key string) ([]string, string, error) {
	key, cleanup, err := signingKey(ctx, dir, key)
	if err != nil {
		return nil, "", err
	}
	defer cleanup()
	program, args, text := "ssh-keygen", []string{"-Y", "sign", "-n", reconciler.ApprovalNamespace, "-f", key}, r.Commit+"\n"
	if id, ok := strings.CutPrefix(key, openPGPKey); ok {
		program, args, text = "gpg", []string{"--armor", "--detach-sign", "--local-user", id}, reconciler.ApprovalText(r.Commit)
	}
	var signature bytes.Buffer
	sign := exec.CommandContext(ctx, program, args...)
	sign.Stdin, sign.Stdout, sign.Stderr = strings.NewReader(text), &signature, a.err
	if err := sign.Run(); err != nil {
		return nil, "", fmt.Errorf("sign with %s: %s: %w (name another key with --key)", key, program, err)
	}
	who, err := r.Approver(signature.String())
	if err != nil {
		return nil, "", answer{"the approval would not count: " + err.Error()}
	}
	file := filepath.Join(dir, filepath.FromSlash(r.ApprovalFile(who[0])))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, "", fmt.Errorf("write approval: %w", err)
	}
	return who, file, atomicfile.Replace(file, signature.Bytes(), 0o644)
}

// openPGPKey is before the ID of a key that gpg has, where otherwise a file of SSH is named.
const openPGPKey = "openpgp:"

// signingKey gives the file of the key to sign with, or openPGPKey and its ID, as git
// chooses it. A public key that git has as text is put into a file until cleanup.
func signingKey(ctx context.Context, dir, key string) (file string, cleanup func(), err error) {
	nothing := func() {}
	if key != "" {
		return key, nothing, nil
	}
	text, err := gitIn(ctx, dir, "config", "--get", "user.signingKey")
	if format, _ := gitIn(ctx, dir, "config", "--get", "gpg.format"); err == nil && format == "openpgp" {
		return openPGPKey + text, nothing, nil
	}
	literal, isLiteral := strings.CutPrefix(text, "key::")
	switch {
	case err == nil && (isLiteral || strings.HasPrefix(text, "ssh-")):
		temp, err := os.CreateTemp("", "hawser-key-*.pub")
		if err != nil {
			return "", nothing, fmt.Errorf("write public key: %w", err)
		}
		_, err = temp.WriteString(literal + "\n")
		return temp.Name(), func() { _ = os.Remove(temp.Name()) }, errors.Join(err, temp.Close())
	case err == nil && text != "":
		if rest, ok := strings.CutPrefix(text, "~/"); ok {
			text = filepath.Join(os.Getenv("HOME"), rest)
		}
		return text, nothing, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", nothing, fmt.Errorf("find the SSH key: %w (name it with --key)", err)
	}
	return filepath.Join(home, ".ssh", "id_ed25519"), nothing, nil
}

// gitIn runs git in a folder and gives what it prints, without the line's end.
func gitIn(ctx context.Context, dir string, args ...string) (string, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if text := strings.TrimSpace(said.String()); err != nil && text != "" {
		err = fmt.Errorf("git: %w: %s", err, text)
	}
	return strings.TrimRight(string(out), "\n"), err
}
