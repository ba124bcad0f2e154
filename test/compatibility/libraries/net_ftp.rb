# frozen_string_literal: true

require_relative "../peers/pure_ftpd"
require_relative "../reasons"

Compatibility.library "net-ftp", kind: "Shells, files and directories" do
  peer Compatibility::Peers::PureFTPd
  load { require "net/ftp" }
  connect do |peer|
    ftp = Net::FTP.new(peer.host, port: peer.port, username: peer.username, password: peer.password, read_timeout: 30)
    [ftp, peer.home]
  end
  ask do |(ftp, folder), number|
    File.write("#{folder}/heddle#{number}", "")
    File.utime(number, number, "#{folder}/heddle#{number}")
    ftp.mtime("heddle#{number}").to_i
  end
  close { |(ftp)| ftp.close }
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
