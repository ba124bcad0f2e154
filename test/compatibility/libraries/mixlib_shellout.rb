# frozen_string_literal: true

require_relative "../program"
require_relative "../reasons"

Compatibility.library "mixlib-shellout", gem: "mixlib-shellout", kind: "Programs" do
  peer(:scripted, &Compatibility::Program.peer)
  load { require "mixlib/shellout" }
  connect { |peer| peer }
  ask do |peer, number|
    Mixlib::ShellOut.new(Compatibility::Program.command(peer, number), timeout: 30).run_command.stdout[/\d+/].to_i
  end
  because :cancel, Compatibility::Reasons::ENDS_FIRST
end
