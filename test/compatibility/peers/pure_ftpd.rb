# frozen_string_literal: true

require_relative "program"

module Compatibility
  module Peers
    # A server of FTP for a user of its own.
    class PureFTPd < Program
      runs "pure-ftpd"

      USER = "heddle"
      PASSWORD = "heddle-test"

      def username = USER

      def password = PASSWORD

      # @return [String] the user's folder
      def home = File.join(dir, "home")

      private

      def prepare
        FileUtils.mkdir_p(home)
        owner = Etc.getpwnam(root? ? "nobody" : Etc.getpwuid.name)
        FileUtils.chown(owner.uid, owner.gid, home) if root?
        FileUtils.chmod(0o755, dir)
        line = [USER, PASSWORD.crypt("$6$heddle$"), owner.uid, owner.gid, "", "#{home}/./", *[""] * 12].join(":")
        passwords = file("passwd", "#{line}\n", mode: 0o600)
        run!(program("pure-pw", package: "pure-ftpd"), "mkdb", File.join(dir, "users.pdb"), "-f", passwords)
      end

      def arguments
        ["-S", "#{host},#{port}", "-l", "puredb:#{dir}/users.pdb", "-E", "-H", "-u", "1", "-c", "100", "-C", "100",
          "-g", "#{dir}/pid"]
      end
    end
  end
end
