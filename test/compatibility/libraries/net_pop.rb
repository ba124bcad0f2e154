# frozen_string_literal: true

Compatibility.library "net-pop", kind: "Mail" do
  peer :scripted do |socket|
    socket.write("+OK ready\r\n")
    number = nil
    while (line = socket.gets("\r\n"))
      number = line[/USER heddle(\d+)/, 1] || number
      socket.write(line.start_with?("STAT") ? "+OK #{number} #{number}\r\n" : "+OK #{"fine" * 40}\r\n")
      break if line.start_with?("QUIT")
    end
  end
  load { require "net/pop" }
  connect { |peer| peer }
  ask do |peer, number|
    Net::POP3.new(peer.host, peer.port).start("heddle#{number}", "secret", &:n_mails)
  end
end
