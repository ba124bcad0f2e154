# frozen_string_literal: true

require "etc"
require_relative "program"

module Compatibility
  module Peers
    # A server of SSH, of which whoever runs the tests is the only user, with a key of its own.
    class OpenSSH < Program
      runs "sshd", package: "openssh-server"

      # @return [String]
      def username = Etc.getpwuid.name

      # @return [String] the path of the private key, the user's and the server's: one is made quicker than two
      def key = File.join(dir, "key")

      private

      def prepare
        FileUtils.mkdir_p("/run/sshd") if root?
        run!(program("ssh-keygen", package: "openssh-client"), "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", key)
        FileUtils.chmod(0o700, dir)
      end

      # It starts itself again for each client, so it wants its whole path. A bash that is not the first does not read
      # the user's .bashrc, which may take long.
      def arguments = ["-D", "-e", "-f", file("sshd_config", <<~CONF)]
        ListenAddress #{host}
        Port #{port}
        HostKey #{key}
        PidFile none
        AuthorizedKeysFile #{key}.pub
        PasswordAuthentication no
        PermitRootLogin yes
        StrictModes no
        UsePAM no
        MaxStartups 100
        Subsystem sftp internal-sftp
        SetEnv SHLVL=2
      CONF
    end
  end
end
