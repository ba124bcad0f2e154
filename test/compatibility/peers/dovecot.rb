# frozen_string_literal: true

require_relative "program"

module Compatibility
  module Peers
    # A server of IMAP that takes any user with one password.
    class Dovecot < Program
      runs "dovecot", package: "dovecot-imapd"

      PASSWORD = "heddle-test"

      def username = "heddle"

      def password = PASSWORD

      private

      def prepare
        owner = root? ? "nobody" : Etc.getpwuid.name
        FileUtils.mkdir_p(File.join(dir, "mail"))
        FileUtils.chown(owner, nil, File.join(dir, "mail")) if root?
        FileUtils.chmod(0o755, dir)
        @owner_of_mail = Etc.getpwnam(owner)
      end

      def arguments = ["-F", "-c", file("dovecot.conf", configuration)]

      def configuration = <<~CONF
        protocols = imap
        base_dir = #{dir}/run
        state_dir = #{dir}/state
        log_path = /dev/stderr
        ssl = no
        disable_plaintext_auth = no
        listen = #{host}
        default_login_user = #{root? ? "nobody" : username}
        default_internal_user = #{root? ? "nobody" : username}
        first_valid_uid = 1
        mail_location = maildir:#{dir}/mail/%u
        mail_uid = #{@owner_of_mail.uid}
        mail_gid = #{@owner_of_mail.gid}
        passdb {
          driver = static
          args = password=#{PASSWORD}
        }
        userdb {
          driver = static
          args = uid=#{@owner_of_mail.uid} gid=#{@owner_of_mail.gid} home=#{dir}/mail/%u
        }
        service imap-login {
          chroot =
          inet_listener imap {
            port = #{port}
          }
          inet_listener imaps {
            port = 0
          }
        }
        service anvil {
          chroot =
        }
      CONF

      def stop_signal = :TERM
    end
  end
end
