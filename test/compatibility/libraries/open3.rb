# frozen_string_literal: true

require_relative "../program"
require_relative "../reasons"

Compatibility.library "open3 (capture2)", gem: "open3", kind: "Programs" do
  peer(:scripted, &Compatibility::Program.peer)
  load { require "open3" }
  connect { |peer| peer }
  ask do |peer, number|
    Open3.capture2(*Compatibility::Program.command(peer, number)).first[/\d+/].to_i
  end
  because :cancel, Compatibility::Reasons::ENDS_FIRST
end
