# frozen_string_literal: true

require_relative "../peers/openssh"

Compatibility.library "net-sftp", kind: "Shells, files and directories" do
  peer Compatibility::Peers::OpenSSH
  load { require "net/sftp" }
  connect do |peer|
    sftp = Net::SFTP.start(peer.host, peer.username, port: peer.port, keys: [peer.key], config: false, keys_only: true,
      non_interactive: true, verify_host_key: :never)
    [sftp, peer.dir]
  end
  ask do |(sftp, folder), number|
    File.write("#{folder}/heddle#{number}", "heddle#{number}" * 40)
    sftp.download!("#{folder}/heddle#{number}")[/\d+/].to_i
  end
  close { |(sftp)| sftp.session.shutdown! }
end
