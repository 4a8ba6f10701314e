package repo

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/plumbing/transport/ssh"
)

// Auth is how to log in to a remote repository. Files are read anew at every
// use, so that a token may be rotated in place.
type Auth struct {
	Username       string // HTTP; with a token most servers take any name
	Password       string // HTTP password or token
	PasswordFile   string // the same in a file; goes before Password
	SSHKeyFile     string // private key; empty asks the SSH agent
	SSHKnownHosts  string // file; empty uses the user's and the system's
	SSHKeyPassword string // of an encrypted key
}

// method gives what go-git needs for the protocol; nil leaves it to what the
// URL holds.
func (a Auth) method(protocol, user string) (transport.AuthMethod, error) {
	switch protocol {
	case "http", "https":
		password := a.Password
		if a.PasswordFile != "" {
			raw, err := os.ReadFile(a.PasswordFile)
			if err != nil {
				return nil, fmt.Errorf("read git token: %w", err)
			}
			password = strings.TrimSpace(string(raw))
		}
		if password == "" && a.Username == "" {
			return nil, nil
		}
		username := a.Username
		if username == "" {
			username = "git"
		}
		return &http.BasicAuth{Username: username, Password: password}, nil
	case "ssh":
		if a.SSHKeyFile == "" && os.Getenv("SSH_AUTH_SOCK") == "" {
			return nil, errors.New("no SSH agent is running (SSH_AUTH_SOCK is not set): start one with ssh-agent, " +
				"or name a private key with hawser reconcile --ssh-key")
		}
		if a.SSHKeyFile == "" {
			return nil, nil
		}
		if user == "" {
			user = "git"
		}
		keys, err := ssh.NewPublicKeysFromFile(user, a.SSHKeyFile, a.SSHKeyPassword)
		if err != nil {
			return nil, fmt.Errorf("read SSH key %s: %w", a.SSHKeyFile, err)
		}
		var files []string
		if a.SSHKnownHosts != "" {
			files = []string{a.SSHKnownHosts}
		}
		keys.HostKeyCallback, err = ssh.NewKnownHostsCallback(files...)
		if err != nil {
			return nil, fmt.Errorf("read known SSH hosts: %w", err)
		}
		return keys, nil
	default:
		return nil, nil
	}
}
