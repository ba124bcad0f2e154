# frozen_string_literal: true

require_relative "../program"
require_relative "../reasons"

Compatibility.library "IO.popen", gem: "io", kind: "Programs" do
  peer(:scripted, &Compatibility::Program.peer)
  load { require "open3" }
  connect { |peer| peer }
  ask do |peer, number|
    IO.popen(Compatibility::Program.command(peer, number), &:read)[/\d+/].to_i
  end
  because :cancel, Compatibility::Reasons::ENDS_FIRST
end
